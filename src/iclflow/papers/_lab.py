"""Where claims and figures get their runs: each is computed once and shared."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Hashable
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from ..config import Config
from ._check import Check
from ._hashes import hash_runs

T = TypeVar("T")
P = ParamSpec("P")

# How wrong predictions are under `falsify`: a check that misses a few per cent is worthless.
BEND = 1.03


class Lab:
    """Runs experiments, caches them, and passes predictions on, or wrong ones under `falsify`.

    **Arguments:**

    - `tier`: how much to compute: more seeds and finer scales at `"paper"`.
    - `falsify`: predictions are deliberately wrong.

    **Example:**

    ```pycon
    >>> lab = icl.papers.Lab("smoke")
    >>> lab.scaled(1, 16, 64)
    1
    ```
    """

    def __init__(self, tier: str = "default", falsify: bool = False):
        self.tier = tier
        self.falsify = falsify
        self.config: dict[str, Any] = {}
        self._memory: dict[Hashable, Any] = {}
        self._hashes: dict[Hashable, str | None] = {}
        self._computing: list[Hashable] = []  # results under way, the innermost last
        self._used: dict[Hashable, None] = {}  # by the present claim, in order
        self._rests_on: dict[Hashable, dict[Hashable, None]] = {}

    def bent(self) -> "Lab":
        """A lab with the same results and deliberately wrong predictions."""
        other = Lab(self.tier, falsify=True)
        other._memory, other._hashes = self._memory, self._hashes
        other._rests_on = self._rests_on
        return other

    def begin(self) -> None:
        """Forgets the settings of the previous claim; results are kept."""
        self.config, self._used = {}, {}

    def hashes(self) -> dict[str, str]:
        """The SHA-256 of the trajectories that the present claim used, by the function that
        computed them."""
        found: dict[str, str] = {}
        for key in self._used:
            if key not in self._hashes:
                self._hashes[key] = hash_runs(self._memory[key])
            if (hash := self._hashes[key]) is not None:
                name = key[1] if isinstance(key, tuple) else str(key)
                found[f"{name} {len(found) + 1}"] = hash
        return found

    def hash_runs(self, runs: Any) -> None:
        """Takes the hash of all these trajectories for a result that keeps only what is measured on
        them; called by the function marked `once` that computes it."""
        self._hashes[self._computing[-1]] = hash_runs(runs)

    def note(self, **settings: Any) -> None:
        """Records the settings under which a claim was tested."""
        self.config = self.config | settings

    def run(self, config: Config, weights: int | None = None) -> Any:
        """The run of a config, such as that of a study, computed once.

        **Arguments:**

        - `weights`: the initial weights are drawn with `jax.random.key(weights)` itself, instead of
          a key that is derived from the seed of the config.
        """
        return self.compute(_run, config, weights)

    def compute(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """The value of a function at these arguments, computed once."""
        return self._once(_key(function, args, kwargs), lambda: function(*args, **kwargs))

    def assume(self, value: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Sets the value of a function, which is then not computed. `function` is an argument of
        `compute`, or is marked `once` (then without the lab)."""
        if getattr(function, "takes_lab", False):
            args = (self, *args)
        self._memory[_key(function, args, kwargs)] = value

    def _once(self, key: Hashable, compute: Callable[[], T]) -> T:
        if key not in self._memory:
            before, self._used = self._used, {}
            self._computing.append(key)
            try:
                self._memory[key] = compute()
            finally:
                self._computing.pop()
            # What a result rests on, for the claims that find it computed.
            self._rests_on[key], self._used = self._used, before
        self._used |= {**self._rests_on.get(key, {}), key: None}
        return self._memory[key]

    def scaled(self, smoke: int, default: int, paper: int) -> int:
        """A number (of seeds, of restarts) that depends on the tier."""
        return {"smoke": smoke, "default": default, "paper": paper}[self.tier]

    def predict(self, value: T, wrong: Any = None) -> T:
        """A prediction; under `falsify`, one that is wrong by 3 %.

        **Arguments:**

        - `wrong`: the wrong prediction, where 3 % more makes no sense, as for an order or a name:
          the nearest alternative that a reader could believe.
        """
        if not self.falsify:
            return value
        return np.asarray(value, float) * BEND if wrong is None else wrong  # pyright: ignore[reportReturnType]

    # The checks of a claim. Each takes its prediction through `predict`, so that under `--falsify`
    # numbers are off by 3 %, counts by one, and bounds are reversed.

    def close(
        self,
        name: str,
        predicted: Any,
        measured: Any,
        tolerance: float,
        wrong: Any = None,
        *,
        scale: Any = None,
    ) -> Check:
        """The two differ by at most `tolerance`.

        **Arguments:**

        - `scale`: what the prediction is a share of, if it is or may be zero: the wrong prediction
          is off by 3 % of it.
        """
        if scale is not None and wrong is None:
            wrong = np.asarray(predicted, float) + (BEND - 1) * np.asarray(scale, float)
        return Check(name, self.predict(predicted, wrong), measured, tolerance, scale=scale)

    def relative(
        self, name: str, predicted: Any, measured: Any, tolerance: float, wrong: Any = None
    ) -> Check:
        """The two differ by at most `tolerance` times the prediction."""
        return Check(name, self.predict(predicted, wrong), measured, tolerance, "relative")

    def sampled(
        self, name: str, predicted: Any, measured: Any, standard_error: Any, wrong: Any = None
    ) -> Check:
        """The measurement was drawn: it is within four standard errors."""
        predicted = self.predict(predicted, wrong)
        return Check(name, predicted, measured, 4.0, "standard errors", standard_error)

    def equal(self, name: str, predicted: Any, measured: Any, wrong: Any = None) -> Check:
        """The two are the same: counts, orders, names, answers to yes or no.

        By default a wrong count is one more, and a wrong answer the other one. For names and orders
        `wrong` must be given.
        """
        if self.falsify and wrong is None:
            wrong = _off_by_one(predicted)
        return Check(name, self.predict(predicted, wrong), measured, comparison="equal")

    def at_least(self, name: str, limit: Any, measured: Any, tolerance: float = 0.0) -> Check:
        """The measurement is not below `limit`, or by at most `tolerance`."""
        if self.falsify:
            return Check(name, np.asarray(limit) - tolerance, measured, comparison="below")
        return Check(name, limit, measured, tolerance, "at least")

    def at_most(self, name: str, limit: Any, measured: Any, tolerance: float = 0.0) -> Check:
        """The measurement is not above `limit`, or by at most `tolerance`."""
        if self.falsify:
            return Check(name, np.asarray(limit) + tolerance, measured, comparison="above")
        return Check(name, limit, measured, tolerance, "at most")


def _off_by_one(value: Any) -> Any:
    """Counts plus one, answers negated."""
    if isinstance(value, list | tuple):
        return [_off_by_one(each) for each in value]
    array = np.asarray(value)
    if array.dtype == bool:
        return ~array
    if not np.issubdtype(array.dtype, np.integer):
        raise TypeError(f"`wrong` must say what is a wrong prediction in place of {value!r}.")
    return array + 1


def once(compute: Callable[Concatenate[Lab, P], T]) -> Callable[Concatenate[Lab, P], T]:
    """Marks a function whose results the lab caches, one for each set of arguments.

    **Example:**

    ```pycon
    >>> @icl.papers.once
    ... def slow(lab, number):
    ...     print("computed")
    ...     return number**2
    >>> lab = icl.papers.Lab()
    >>> slow(lab, 3), slow(lab, 3)
    computed
    (9, 9)
    ```
    """

    @functools.wraps(compute)
    def recall(lab: Lab, *args: P.args, **kwargs: P.kwargs) -> T:
        key = _key(compute, (lab, *args), kwargs)
        return lab._once(key, lambda: compute(lab, *args, **kwargs))

    setattr(recall, "takes_lab", True)
    return recall


def _key(function: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> Hashable:
    """A key for a function and its arguments, defaults included, the lab left out."""
    function = inspect.unwrap(function)  # from type checks and caches
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    given = {name: value for name, value in bound.arguments.items() if not isinstance(value, Lab)}
    # The line distinguishes lambdas.
    line = getattr(getattr(function, "__code__", None), "co_firstlineno", 0)
    return function.__module__, function.__qualname__, line, _content(given)


def _content(value: Any) -> Hashable:
    """A hashable copy of an argument: all numbers of arrays, also of those inside models."""
    if isinstance(value, Config):
        return value.hash
    if isinstance(value, str | int | float | None) or hasattr(value, "__code__"):
        return value
    if isinstance(value, dict):
        return tuple((key, _content(each)) for key, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_content, value))
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    # Options such as `SaveAtDrops()`. Models are dataclasses too: their structure is told below.
    if dataclasses.is_dataclass(value) and not isinstance(value, eqx.Module | type):
        fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        return type(value).__qualname__, _content(fields)

    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        array = np.asarray(value)
        return str(array.dtype), array.shape, array.tobytes()
    leaves, structure = jax.tree.flatten(value)
    if leaves == [value]:
        raise TypeError(f"A lab cannot tell values of type {type(value).__name__} apart.")
    return str(structure), _content(leaves)


def _run(config: Config, weights: int | None) -> Any:
    import jax.random as jr

    from ..experiment import build_model, prepare, train

    experiment = prepare(config)
    if weights is None:
        return train(experiment)
    model, attention = build_model(config, jr.key(weights))
    return train(dataclasses.replace(experiment, model=model, attention=attention))
