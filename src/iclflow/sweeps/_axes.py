"""The axes of a sweep: which settings vary, over which values, and how they go together."""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..config import InputError
from ..errors import shorten

_RANGE = ("from", "to", "count", "log")
# Settings that a sweep gives elsewhere, or that change no run.
_NO_AXIS = {
    "seed": "give `seeds`",
    "name": "give `name` at the top of the file",
    "theory": "it changes the figure of a run, not the run",
}
# Most runs of a sweep: a further seed of a point takes some hundred bytes.
LARGEST = 10**7
# Most points. Each has a config, which takes kilobytes and a tenth of a millisecond: more than a
# million would take minutes and gigabytes before the first run begins.
MOST_POINTS = 10**6


@dataclasses.dataclass(frozen=True)
class Axis:
    """One setting, by its dotted name, and the values that it takes, in order."""

    setting: str
    values: tuple[Any, ...]


def parse_axes(data: Any) -> tuple[Axis, ...]:
    """The section `[axes]`: a list of values, or a range, for each dotted setting."""
    if not isinstance(data, Mapping):
        raise InputError("axes", data, "must be a section of settings")
    axes: dict[str, Axis] = {}
    # Zipped axes have as many values each: four of them may have one per point.
    left = 4 * MOST_POINTS
    for name, given in _flatten(data, ""):
        if name in axes:
            raise InputError(
                f'`axes.{name}` is given twice: must be "{name}" or a section in [axes], not both.'
            )
        axes[name] = Axis(name, _values(name, given))
        left -= len(axes[name].values)
        if left < 0:
            raise InputError(
                f"`axes` holds {4 * MOST_POINTS - left} values up to `{name}`: must be at most "
                f"{4 * MOST_POINTS} in all."
            )
    return tuple(axes.values())


def _flatten(data: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Settings by dotted name, whether the file writes `"model.scale"` or a table in a table."""
    for key, value in data.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and not set(value) & set(_RANGE):
            if not value:
                raise InputError(f"`axes.{name}` is empty: must be a list of values, or a range.")
            yield from _flatten(value, f"{name}.")
        else:
            yield name, value


def _values(name: str, given: Any) -> tuple[Any, ...]:
    if name in _NO_AXIS:
        raise InputError(f"`axes.{name}` cannot be an axis: {_NO_AXIS[name]}.")
    if isinstance(given, Mapping):
        return _range(name, given)
    if not isinstance(given, list | tuple) or not given:
        raise InputError(
            f"axes.{name}",
            given,
            "must be a list of values, or a range such as "
            "{from = 1e-3, to = 1, count = 7, log = true}",
        )
    if len(given) > MOST_POINTS:
        raise InputError(f"`axes.{name}` holds {len(given)} values: must be at most {MOST_POINTS}.")
    seen = set()
    for value in given:
        if isinstance(value, Mapping):
            problem = f"holds {shorten(value)}"
            raise InputError(
                f"axes.{name}", problem=problem, allowed="must be a value, not a section"
            )
        hashable = _hashable(value)
        if hashable in seen:
            raise InputError(f"`axes.{name}` holds {shorten(value)} twice: values must differ.")
        seen.add(hashable)
    return tuple(given)


def _hashable(value: Any) -> Any:
    """A value that can be a member of a set, equal for equal values."""
    if isinstance(value, list | tuple):
        return tuple(map(_hashable, value))
    return repr(value) if isinstance(value, Mapping) else value


def _range(name: str, given: Mapping[str, Any]) -> tuple[Any, ...]:
    for key in given:
        if key not in _RANGE:
            raise InputError(f"`axes.{name}.{key}` is unknown: allowed are {', '.join(_RANGE)}.")
    for key in _RANGE[:3]:
        if key not in given:
            raise InputError(f"`axes.{name}.{key}` is missing: a range needs from, to and count.")
    first, last, count, log = (given.get(key, False) for key in _RANGE)
    for key, value in (("from", first), ("to", last)):
        if not _is_finite(value):
            raise InputError(f"axes.{name}.{key}", value, "must be a finite number")
    if isinstance(count, bool) or not isinstance(count, int) or not 2 <= count <= MOST_POINTS:
        raise InputError(
            f"axes.{name}.count", count, f"must be a whole number from 2 to {MOST_POINTS}"
        )
    if not isinstance(log, bool):
        raise InputError(f"axes.{name}.log", log, "must be true or false")
    if first == last:
        raise InputError(
            f"`axes.{name}` goes from {shorten(first)} to {shorten(last)}: the two must differ."
        )
    if log and min(first, last) <= 0:
        raise InputError(
            f"`axes.{name}.from` = {first}, `to` = {last}: both must be positive for log = true."
        )
    # Values between distant ends can overflow: they are refused next.
    with np.errstate(all="ignore"):
        ends = float(first), float(last)
        spaced = np.geomspace(*ends, count) if log else np.linspace(*ends, count)
    values = (ends[0], *spaced[1:-1].tolist(), ends[1])
    if not np.isfinite(values).all() or len(set(values)) < count:
        raise InputError(
            f"`axes.{name}` goes from {shorten(first)} to {shorten(last)} in {count} values: must "
            "have ends between which so many different numbers can be stored."
        )
    rounded = np.round(values)
    # A range of whole numbers gives integers, as a number of heads must be.
    if (
        isinstance(first, int)
        and isinstance(last, int)
        and np.allclose(values, rounded, 1e-14, 1e-9)
    ):
        return tuple(int(value) for value in rounded)
    return values


def _is_finite(value: Any) -> bool:
    """Whether a value is a number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer with hundreds of digits
        return False


def parse_zips(data: Any, axes: Sequence[Axis]) -> tuple[tuple[str, ...], ...]:
    """The key `zip`: groups of axes that advance together."""
    if not isinstance(data, list | tuple) or not all(isinstance(g, list | tuple) for g in data):
        raise InputError("zip", data, 'must be a list of lists of axes, such as [["a.b", "a.c"]]')
    known, used = {axis.setting: axis for axis in axes}, set()
    for group in data:
        if len(group) < 2:
            raise InputError(f"`zip` holds {shorten(group)}: must name at least two axes.")
        for name in group:
            if not isinstance(name, str) or name not in known:
                allowed = f"allowed are {', '.join(known)}" if known else "there are none"
                raise InputError(f"`zip` names {shorten(name)}, which is no axis: {allowed}.")
            if name in used:
                raise InputError(f"`zip` names `{name}` twice: an axis advances with one group.")
            used.add(name)
            first, count = group[0], len(known[name].values)
            if count != len(known[first].values):
                raise InputError(
                    f"`axes.{name}` has {count} values: must have as many as `axes.{first}`, "
                    f"{len(known[first].values)}, because `zip` joins them."
                )
    return tuple(tuple(group) for group in data)


def expand_axes(axes: Sequence[Axis], zips: Sequence[tuple[str, ...]]) -> Iterator[dict[str, Any]]:
    """The settings of every point; the last axis varies fastest, and zipped axes vary together."""
    group_of = {name: group for group in zips for name in group}
    known = {axis.setting: axis.values for axis in axes}
    tracks, seen = [], set()
    for axis in axes:
        group = group_of.get(axis.setting, (axis.setting,))
        if group not in seen:
            seen.add(group)
            tracks.append([dict(zip(group, row)) for row in zip(*(known[n] for n in group))])
    for steps in itertools.product(*tracks):
        together: dict[str, Any] = {}
        for step in steps:
            together |= step
        yield {axis.setting: together[axis.setting] for axis in axes}


def point_count(axes: Sequence[Axis], zips: Sequence[tuple[str, ...]]) -> int:
    """The number of points, without making them."""
    behind = {name for group in zips for name in group[1:]}
    return math.prod(len(axis.values) for axis in axes if axis.setting not in behind)
