"""Parts of the sentences about a run: numbers, levels and estimators in words."""

from collections.abc import Sequence

import numpy as np

from ..analysis import Algorithm, Directions, Match
from ..estimators import PopulationPCR
from ..trajectory import Trajectory

# A loss within this share of a step is on the level where the step begins or ends.
# One that is farther from it than the smaller of these shares has just come or is about to go.
_MARGIN, _ON = 0.05, 0.01
# Over the last tenth of the time a loss that drops has moved by this share of a step.
_DROPPING = 0.01
# Up to here a model equals an estimator, in words; `Algorithm.known` says up to where it is near.
_EQUAL = 0.05
# From here on nothing of the nearest estimator is in a model.
_NOTHING_OF_IT = 0.9
# Predictions below this share of the best ones are next to nothing.
SMALL = 0.03
# Over the last tenth of the time a loss that moves by less than this share rests.
_REST = 1e-3
# Directions that turn into others by more than this share of the best strength are mixed.
_MIXED = 0.25
# So many things are named one by one.
MOST_NAMED = 4


def pace(run: Trajectory, index: int) -> str:
    """The loss, and how it moves."""
    loss, time = float(run.losses[index]), float(run.times[index])
    if index == 0:
        return f"The start: the loss is {number(loss)}."
    start = float(run.losses[0])
    known = run[: index + 1]
    earlier = float(known.loss_at(0.9 * time))
    change = (earlier - loss) / max(abs(earlier), np.finfo(float).tiny)
    moves = "at rest" if abs(change) < _REST else "falling" if change > 0 else "rising"
    since = abs(start - loss) / max(abs(start), np.finfo(float).tiny)
    side = f"{done(since)} below" if loss <= start else f"{percent(since)} above"
    return f"The loss is {number(loss)}, {side} its start, and {moves}."


def _place(place: int, steps: int) -> str:
    """A level as a sentence names it: plateaus, and the bottom below all steps."""
    if place == steps:
        return "the bottom"
    return "the plateau" if steps == 1 else f"plateau {place + 1} of {steps}"


def on_stairs(
    levels: np.ndarray,
    drop_times: np.ndarray,
    run: Trajectory,
    index: int,
    found: Directions | None,
    each: int,
) -> str | None:
    """Where on theory's stairs a run is; None if its model is not what belongs to that place, or
    the loss rests where no level is.

    **Arguments:**

    - `levels`, `drop_times`: as in `iclflow.experiment.Overlay`.
    - `found`: what the model does along each direction, where that is known.
    - `each`: how many directions are learned with each step.
    """
    loss, time = float(run.losses[index]), float(run.times[index])
    steps = -np.diff(levels)
    before, after = np.append(steps[:1], steps), np.append(steps, steps[-1:])
    off = loss - levels
    near = np.where(off > 0, off <= _MARGIN * before, -off <= _MARGIN * after)
    if near.any():
        place = int(np.flatnonzero(near)[np.argmin(np.abs(off[near]))])
        if found is not None and not (found.settled and found.learned.sum() == each * place):
            return None
        share = abs(off[place]) / (before[place] if off[place] > 0 else after[place])
        side = "above" if off[place] > 0 else "below"
        told = f"the loss is {number(loss)}, theory's level is {number(levels[place])}"
        told += f" ({percent(share)} of the drop {side} it)."
        where = _place(place, len(steps))
        if share <= _ON:
            return f"{where[:1].upper()}{where[1:]}: {told}"
        # Below the last level nothing is left that could be left.
        leaving = off[place] < 0 and place < len(steps)
        return f"{'Leaving' if leaving else 'Near'} {where}: {told}"
    if loss > levels[0]:
        return f"The loss is {number(loss)}, above theory's first level {number(levels[0])}."
    if loss < levels[-1]:
        return f"The loss is {number(loss)}, below theory's last level {number(levels[-1])}."
    place = int(np.searchsorted(-levels, -loss)) - 1
    target = "the bottom" if place + 1 == len(steps) else f"level {place + 2}"
    if found is not None and found.resting:
        return f"The loss is {number(loss)}, between theory's level {place + 1} and {target}."
    earlier = float(run[: index + 1].loss_at(0.9 * time))
    if earlier - loss < _DROPPING * steps[place]:
        return None
    if found is not None and not found.between(each * place, each * (place + 1)):
        return None
    share = (levels[place] - loss) / steps[place]
    told = f"Dropping: {percent(share)} of the way from level {place + 1} to {target}"
    if place < len(drop_times) and np.isfinite(drop_times[place]):
        name = "t =" if run.clock == "time" else "step"
        told += f"; predicted half-way at {name} {number(drop_times[place])}, "
        told += f"now {name} {number(time)}"
    return f"{told}."


def learned_told(found: Directions) -> str:
    """The components that are learned; where some are equal, how many directions are."""
    learned, total = found.learned, len(found.strengths)
    count = int(learned.sum())
    distinct = len(found.spaces) == total
    noun = "component" if distinct else "direction"
    strongest = float(np.max(np.abs(found.strengths)))
    much = strongest > 2
    strong = f"; the strongest has {number(strongest)} times its best strength" if much else ""
    if count == 0 and not much and np.max(found.mixing) > _MIXED:
        return f"No {noun} is learned by itself: the model mixes them."
    if count == 0:
        return f"No {noun} is learned{strong or ' yet'}."
    if count == total > 1:
        return f"{'Both' if total == 2 else f'All {total}'} {noun}s are learned."
    if distinct:
        names = ", ".join(str(d + 1) for d in np.flatnonzero(learned))
        return f"Learned components: {names}{strong}."
    return f"{count} of {total} directions {'is' if count == 1 else 'are'} learned{strong}."


def estimators_told(found: Sequence[Algorithm], sizes: Sequence[float]) -> str | None:
    """Which estimator a model is, for each label that it predicts; None if that is too much.

    **Arguments:**

    - `sizes`: how large its predictions of each label are, as a share of the best ones.
    """
    kinds = [_kind(each, size) for each, size in zip(found, sizes)]
    if len(found) == 1:
        return f"This model {_is(kinds[0], [found[0].best])}."
    groups: dict[tuple[str, str], list[int]] = {}
    for i, (kind, each) in enumerate(zip(kinds, found)):
        named = "" if kind in ("nothing", "unknown") else _name(each.best)
        groups.setdefault((kind, named), []).append(i)
    if len(groups) > MOST_NAMED:
        return None
    if len(groups) == 1 and kinds[0] == "unknown":
        return "On no task is it a known estimator."
    said = []
    for (kind, _), labels in groups.items():
        where = "every task" if len(groups) == 1 else numbered("task", [i + 1 for i in labels])
        said.append(f"on {where} it {_is(kind, [found[i].best for i in labels])}")
    return f"{sentence(said)}."


def _kind(found: Algorithm, size: float) -> str:
    if size < SMALL or (found.known and _is_zero(found.best)):
        return "nothing"
    if not found.known:
        return "unknown"
    return "equal" if found.best.distance <= _EQUAL else "near"


def _is_zero(match: Match) -> bool:
    return match.name in ("zero", "PCR with 0 components")


def _is(kind: str, matches: list[Match]) -> str:
    """What a model is on the labels with these matches, which have one name."""
    if kind == "nothing":
        return "predicts next to nothing"
    farthest = max(matches, key=lambda match: match.distance)
    alone = len(matches) == 1
    # Step sizes differ from label to label.
    name = _name(farthest)
    if alone and farthest.step_size is not None:
        name += f" (η = {number(farthest.step_size)})"
    if kind == "equal":
        return f"now equals {name} to {farthest.words}{'' if alone else ' or better'}"
    if kind == "near":
        return f"is near to {name}: {'' if alone else 'at most '}{farthest.words} apart"
    if not alone or farthest.distance >= _NOTHING_OF_IT or _is_zero(farthest):
        return "is no known estimator"
    return f"is no known estimator; the nearest, {name}, is {farthest.words} apart"


def _name(match: Match) -> str:
    """An estimator as a sentence names it; components count from 1 here."""
    estimator = match.estimator
    if isinstance(estimator, PopulationPCR) and estimator.which != tuple(
        range(len(estimator.which))
    ):
        one = len(estimator.which) == 1
        numbers = ", ".join(str(d + 1) for d in estimator.which)
        return f"PCR with component{'' if one else 's'} {numbers} alone"
    return match.name


def numbered(noun: str, numbers: Sequence[int]) -> str:
    """Things by their numbers: "task 2", "tasks 1, 3"."""
    return f"{noun}{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"


def sentence(parts: list[str]) -> str:
    text = "; ".join(parts)
    return text[:1].upper() + text[1:]


def number(value: float) -> str:
    """Four digits, and thousands set apart."""
    size = abs(value)
    if size < 1e-12:
        return "0"
    if 1e3 <= size < 1e7:
        text = f"{size:,.0f}".replace(",", "\u202f")
    else:
        text = f"{size:.4g}" if size >= 1e-3 else f"{size:.2g}"
    return f"−{text}" if value < 0 else text


def percent(share: float) -> str:
    """Two digits, or as many as stand before the point."""
    value = 100 * share
    if value < 0.01:
        return "less than 0.01 %"
    if value < 1:
        return f"{value:.2g} %"
    return f"{value:.0f} %" if value >= 9.95 else f"{value:.1f} %"


def done(share: float) -> str:
    """How much of something is done: 100 % only if nothing is left."""
    if not 0.99 < share < 1:
        return percent(min(max(share, 0.0), 1.0))
    return f"{np.floor(1000 * share) / 10:.1f} %"
