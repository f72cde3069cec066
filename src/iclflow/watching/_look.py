"""A look at a model: what was measured at one step, as one line of a record."""

import collections
import dataclasses
from typing import Any

from ..analysis import Algorithm, Sampled
from ._evaluation import Measurement
from ._heads import LayerLook
from ._words import percent

Plain = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Distance:
    """The distance of a model's predictions from those of one estimator.

    **Fields:**

    - `distance`: √(E(ŷ − ŷ_estimator)² / Eŷ²) on the evaluation set.
    - `error`: its standard error.
    - `step_size`: the one that fits best, where the estimator has a free one.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=3, context=10, noise=0.1)
    >>> watch = icl.watch(task, lambda x, y, x_query: np.zeros(len(x)), every=1)
    >>> distance = watch(0).distances[0][0]
    >>> distance.name, round(distance.distance, 3)
    ('zero', 0.0)
    ```
    """

    name: str
    distance: float
    error: float
    step_size: float | None = None


@dataclasses.dataclass(frozen=True)
class Look:
    """A model at one step of its training.

    **Fields:**

    - `seconds`: since the training began, as far as it was watched.
    - `loss`: with its standard error; `excess`: above the smallest possible one.
    - `lengths`, `losses`, `excesses`: the same over context lengths.
    - `nearest`: the estimator that is nearest for each label, `closeness` in one word ("equal",
      "near" or "unknown"); `distances` has all, the nearest first.
    - `layers`: the heads of each layer, where weights are read; None elsewhere.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=3, context=10, noise=0.1)
    >>> watch = icl.watch(task, lambda x, y, x_query: np.zeros(len(x)), every=1)
    >>> look = watch(0)
    >>> look.nearest[0].name, bool(look.excess.value > 0)
    ('zero', True)
    >>> look
    Look(step 0, loss 1.079 ± 0.094, nearest: zero)
    ```
    """

    step: int
    seconds: float
    loss: Sampled
    excess: Sampled | None
    lengths: tuple[int, ...]
    losses: tuple[Sampled, ...]
    excesses: tuple[Sampled, ...] | None
    distances: tuple[tuple[Distance, ...], ...]
    closeness: tuple[str, ...]
    layers: tuple[LayerLook, ...] | None = None

    @staticmethod
    def of(
        step: int,
        seconds: float,
        found: Measurement,
        layers: tuple[LayerLook, ...] | None = None,
    ) -> "Look":
        """A measurement as a look."""
        algorithms = found.algorithms or ()
        return Look(
            step=step,
            seconds=seconds,
            loss=found.loss,
            excess=found.excess,
            lengths=found.lengths,
            losses=found.losses,
            excesses=found.excesses,
            distances=tuple(_distances(each) for each in algorithms),
            closeness=tuple(each.closeness for each in algorithms),
            layers=layers,
        )

    def __repr__(self) -> str:
        # All distances at all lengths would fill a screen of a notebook.
        near = ", ".join(each.name for each in self.nearest)
        loss = f"loss {self.loss.value:.4g} ± {self.loss.standard_error:.2g}"
        return f"Look(step {self.step}, {loss}{', nearest: ' if near else ''}{near})"

    @property
    def nearest(self) -> tuple[Distance, ...]:
        """The nearest estimator for each label."""
        return tuple(each[0] for each in self.distances)

    def __str__(self) -> str:
        words = f"step {self.step}: loss {self.loss.value:.4g} ± {self.loss.standard_error:.1g}"
        if self.excess is not None:
            words += f", {self.excess.value:.3g} above Bayes"
        for nearest, closeness in zip(self.nearest, self.closeness):
            known = "" if closeness != "unknown" else "no known estimator, nearest "
            words += f"; {known}{nearest.name} ({percent(nearest.distance, 2)} away)"
        if self.layers:
            counts = collections.Counter(role for each in self.layers for role in each.roles)
            words += "; heads: " + ", ".join(f"{count} {role}" for role, count in counts.items())
        return words

    def as_json(self) -> Plain:
        """The look as plain data."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(data: Plain) -> "Look":
        """The look of plain data; a `ValueError` or `TypeError` for anything else."""
        means = lambda each: None if each is None else tuple(Sampled(*mean) for mean in each)
        fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value
                                  for name, value in data.items()}  # fmt: skip
        fields["loss"] = Sampled(*data["loss"])
        fields["excess"] = None if data["excess"] is None else Sampled(*data["excess"])
        fields["losses"], fields["excesses"] = means(data["losses"]), means(data["excesses"])
        fields["distances"] = tuple(
            tuple(Distance(**one) for one in label) for label in data["distances"]
        )
        layers = data.get("layers")
        fields["layers"] = None if layers is None else tuple(map(LayerLook.from_json, layers))
        return Look(**fields)

    def metrics(self) -> dict[str, float]:
        """The numbers by name, for a logger."""
        found = {"icl/loss": self.loss.value, "icl/loss_error": self.loss.standard_error}
        if self.excess is not None:
            found["icl/excess"] = self.excess.value
        for label, distances in enumerate(self.distances):
            of = f"/{label}" if len(self.distances) > 1 else ""
            found |= {f"icl/distance{of}/{each.name}": each.distance for each in distances}
        for length, loss in zip(self.lengths, self.losses):
            found[f"icl/loss_at/{length}"] = loss.value
        for layer in self.layers or ():
            found |= layer.metrics()
        return found


def _distances(algorithm: Algorithm) -> tuple[Distance, ...]:
    return tuple(
        Distance(match.name, match.distance, match.standard_error, match.step_size)
        for match in algorithm.matches
    )
