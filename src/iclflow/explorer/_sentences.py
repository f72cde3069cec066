"""Sentences about a moment of a run: its loss, its levels, its components, its estimators."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ..analysis import Algorithm, Directions, Match, loss_trend, place_on_stairs
from ..estimators import PopulationPCR
from ..trajectory import Trajectory
from ._text import MOST_NAMED, list_numbers, number, percent, percent_done, sentence

# Farther than this from the nearest estimator, a model has nothing in common with it.
_UNRELATED = 0.9
# Predictions below this share of the best ones are almost zero.
SMALL = 0.03
# Directions that turn into others by more than this share of the best strength are mixed.
_MIXED = 0.25
# A loss nearer to a level than this share of the drop is at the level.
_AT_LEVEL = 1e-4
# A strength above this multiple of the best one is mentioned.
_TOO_STRONG = 2.0

Kind = Literal["nothing", "unknown", "equal", "near"]


def describe_loss(run: Trajectory, index: int) -> str:
    """The loss, and how it moves."""
    loss, start = float(run.losses[index]), float(run.losses[0])
    if index == 0:
        return f"The start: the loss is {number(loss)}."
    since = abs(start - loss) / max(abs(start), np.finfo(float).tiny)
    side = f"{percent_done(since)} below" if loss <= start else f"{percent(since)} above"
    return f"The loss is {number(loss)}, {side} its start, and {loss_trend(run, index)}."


def describe_stairs(
    levels: np.ndarray,
    drop_times: np.ndarray,
    run: Trajectory,
    index: int,
    found: Directions | None,
    each: int,
) -> str | None:
    """Where on the staircase of theory a run is; None where it is not on it. Arguments as for
    `iclflow.analysis.place_on_stairs`, with the `drop_times` of `iclflow.experiment.Overlay`."""
    place = place_on_stairs(levels, run, index, found, each)
    if place is None:
        return None
    loss, steps, level = number(float(run.losses[index])), len(levels) - 1, place.level
    theory = number(levels[level])
    if place.kind in ("above", "below"):
        end = "first" if place.kind == "above" else "last"
        return f"The loss is {loss}, {place.kind} theory's {end} level {theory}."
    target = "the bottom" if level + 1 == steps else f"level {level + 2}"
    if place.kind == "between":
        return f"The loss is {loss}, between theory's level {level + 1} and {target}."
    if place.kind == "dropping":
        done = f"Dropping: {percent(place.share)} of the way from level {level + 1} to {target}"
        return f"{done}{_predicted_drop(drop_times, level, run, index)}."
    name = "plateau" if steps == 1 else f"plateau {level + 1} of {steps}"
    if level == steps:
        name = "bottom"
    # "Plateau 2 of 4: …" on it, "Leaving plateau 2 of 4: …" off it; "the" where there is one.
    where = f"the {name}" if name in ("bottom", "plateau") else name
    if place.kind == "on":
        where = where[:1].upper() + where[1:]
    else:
        where = f"{place.kind.capitalize()} {where}"
    side = "above" if place.is_above else "below"
    if place.share < _AT_LEVEL:
        return f"{where}: the loss is {loss}, at theory's level {theory}."
    share = percent(place.share)
    return f"{where}: the loss is {loss}, {side} theory's level {theory} by {share} of the drop."


def _predicted_drop(drop_times: np.ndarray, level: int, run: Trajectory, index: int) -> str:
    """When theory says that the loss is half-way down from a level, where it says so."""
    if level >= len(drop_times) or not np.isfinite(drop_times[level]):
        return ""
    unit, now = "t =" if run.clock == "time" else "step", number(float(run.times[index]))
    return f"; predicted half-way at {unit} {number(drop_times[level])}, now {unit} {now}"


def describe_learned(found: Directions) -> str:
    """The components that are learned; where some are equal, how many directions are."""
    learned, total = found.learned, len(found.strengths)
    count = int(learned.sum())
    distinct = len(found.spaces) == total
    noun = "component" if distinct else "direction"
    strongest = float(np.max(np.abs(found.strengths)))
    strong = ""
    if strongest > _TOO_STRONG:
        strong = f"; the strongest has {number(strongest)} times its best strength"
    if count == 0 and not strong and np.max(found.mixing) > _MIXED:
        return f"No {noun} is learned by itself: the model mixes them."
    if count == 0:
        return f"No {noun} is learned{strong or ' yet'}."
    if count == total > 1:
        return f"{'Both' if total == 2 else f'All {total}'} {noun}s are learned."
    if distinct:
        names = ", ".join(str(d + 1) for d in np.flatnonzero(learned))
        return f"Learned components: {names}{strong}."
    return f"{count} of {total} directions {'is' if count == 1 else 'are'} learned{strong}."


def describe_estimators(found: Sequence[Algorithm], sizes: Sequence[float]) -> str | None:
    """Which estimator a model is, for each label that it predicts; None if that is too much.

    **Arguments:**

    - `sizes`: how large its predictions of each label are, as a share of the best ones.
    """
    kinds: list[Kind] = [_kind(each, size) for each, size in zip(found, sizes)]
    if len(found) == 1:
        return f"This model {_verdict(kinds[0], [found[0].best])}."
    groups: dict[tuple[Kind, str], list[int]] = {}
    for i, (kind, each) in enumerate(zip(kinds, found)):
        named = "" if kind in ("nothing", "unknown") else _name(each.best)
        groups.setdefault((kind, named), []).append(i)
    if len(groups) > MOST_NAMED:
        return None
    if len(groups) == 1 and kinds[0] == "unknown":
        return "On no task is it a known estimator."
    clauses = []
    for (kind, _), labels in groups.items():
        where = "every task" if len(groups) == 1 else list_numbers("task", [i + 1 for i in labels])
        clauses.append(f"on {where} it {_verdict(kind, [found[i].best for i in labels])}")
    return sentence(clauses)


def _kind(found: Algorithm, size: float) -> Kind:
    if size < SMALL or (found.known and found.best.is_zero):
        return "nothing"
    return found.closeness


def _verdict(kind: Kind, matches: list[Match]) -> str:
    """What a model is on the labels with these matches, which have one name."""
    if kind == "nothing":
        return "predicts almost zero"
    farthest = max(matches, key=lambda match: match.distance)
    alone = len(matches) == 1
    name = _name(farthest)
    # Step sizes differ from label to label.
    if alone and farthest.step_size is not None:
        name += f" (η = {number(farthest.step_size)})"
    if kind == "equal":
        return f"now equals {name} to {farthest.words}{'' if alone else ' or better'}"
    if kind == "near":
        return f"is near {name}: {'' if alone else 'at most '}{farthest.words} apart"
    if not alone or farthest.distance >= _UNRELATED or farthest.is_zero:
        return "matches no known estimator"
    return f"matches no known estimator; the nearest, {name}, is {farthest.words} apart"


def _name(match: Match) -> str:
    """An estimator as a sentence names it; components count from 1 here."""
    estimator = match.estimator
    if not isinstance(estimator, PopulationPCR):
        return match.name
    which = estimator.which
    if which == tuple(range(len(which))):
        return match.name
    return f"PCR with {list_numbers('component', [d + 1 for d in which])} alone"
