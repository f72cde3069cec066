"""Power series in several variables, cut off at chosen orders, with arrays as coefficients."""

import functools
import itertools
from collections.abc import Iterable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

# The power of each variable.
Order = tuple[int, ...]


def all_below(orders: tuple[Order, ...]) -> tuple[Order, ...]:
    """These orders and all smaller ones, smallest first."""
    smaller = (itertools.product(*(range(n + 1) for n in order)) for order in orders)
    return tuple(sorted({order for group in smaller for order in group}, key=lambda o: (sum(o), o)))


class PowerSeries(NamedTuple):
    """Σ c_k t^k over the orders k that are kept, which hold with every order all smaller ones."""

    terms: dict[Order, Array]

    def __add__(self, other: "PowerSeries") -> "PowerSeries":
        return PowerSeries({k: c + other.terms[k] for k, c in self.terms.items()})

    def __mul__(self, other: "PowerSeries") -> "PowerSeries":
        below = lambda k: [i for i in self.terms if _divides(i, k)]
        product = lambda k: _total(self.terms[i] * other.terms[_minus(k, i)] for i in below(k))
        return PowerSeries({k: product(k) for k in self.terms})

    def times(self, factor: float | Array) -> "PowerSeries":
        return PowerSeries({k: factor * c for k, c in self.terms.items()})

    def log(self, tiny: float) -> "PowerSeries":
        """The logarithm, with `tiny` added to the constant so that it may be zero."""
        zero, *rest = self.terms
        safe = self.terms[zero] + tiny
        found = {zero: jnp.log(safe)}
        for k in rest:  # from f ∂(log f) = ∂f
            axis = next(i for i, n in enumerate(k) if n)
            known = [i for i in found if i[axis] and _divides(i, k)]
            crossed = (i[axis] / k[axis] * found[i] * self.terms[_minus(k, i)] for i in known)
            found[k] = _total([self.terms[k], *(-term for term in crossed)]) / safe
        return PowerSeries(found)

    def exp(self) -> "PowerSeries":
        zero, *rest = self.terms
        found = {zero: jnp.exp(self.terms[zero])}
        for k in rest:  # from ∂(exp f) = exp f ∂f
            axis = next(i for i, n in enumerate(k) if n)
            known = [i for i in self.terms if i[axis] and _divides(i, k)]
            found[k] = _total(
                i[axis] / k[axis] * self.terms[i] * found[_minus(k, i)] for i in known
            )
        return PowerSeries(found)


def _divides(small: Order, large: Order) -> bool:
    return all(i <= k for i, k in zip(small, large))


def _minus(large: Order, small: Order) -> Order:
    return tuple(k - i for k, i in zip(large, small))


def _total(terms: Iterable[Array]) -> Array:
    return functools.reduce(jnp.add, terms)
