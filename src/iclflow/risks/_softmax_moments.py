"""Moments of softmax attention over normal scores, and their derivatives, on one grid.

For L tokens with s_ℓ ~ N(0, 1) and attention p = softmax(a s), p′ = softmax(b s):

    overlap  G = E[p·p′]            product  M = E[(p·s)(p′·s)]

With 1/Z = ∫ exp(−tZ) dt, t = exp(x), they become integrals over x and x′ of averages ⟨·⟩ over a
single s ~ N(0, 1), in which L is nothing but an exponent (docs/theory/softmax.md). With
e = exp(−exp(x + as)), e′ the same of b and x′, dots for derivatives, and Φ = ⟨e e′⟩:

    G = ∬ L ⟨ė ė′⟩ Φ^(L−1),   M = ∬ L ⟨s² ė ė′⟩ Φ^(L−1) + L(L−1) ⟨s ė e′⟩⟨s e ė′⟩ Φ^(L−2)

and 1 = G + ∬ L(L−1) ⟨ė e′⟩⟨e ė′⟩ Φ^(L−2), which tests a grid for free. The averages
⟨sⁿ e⁽ⁱ⁾ e′⁽ʲ⁾⟩ are closed under differentiation: by a raises n and i, by b raises n and j.
"""

import functools
import itertools
import math
from collections.abc import Iterable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ._softmax_grids import Scalar
from ._softmax_plans import Plan, Sizes, sum_of

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


# Added to Φ, which underflows where no token survives: its logarithm must be finite.
_TINY = 1e-290


def moments(
    plan: Plan, arguments: tuple[Scalar, ...], sizes: Sizes, orders: tuple[Order, ...], check: bool
) -> Float[Array, "orders moments"]:
    """Partial derivatives of G and M on the grid of `plan`.

    **Arguments:**

    - `arguments`: the slopes, and L.
    - `orders`: how often to differentiate by each argument.
    - `check`: adds the sum that should be 1, and its derivatives.
    """
    *slopes, length = arguments
    single = len(slopes) == 1
    # A head with itself has one integral: t dt in place of dt dt′ turns ⟨ė ė′⟩ into ⟨ë − ė⟩.
    ties = ((2, 0), (1, 0)) if single else ((1, 1),)
    wins = ((1, 0),) if single else ((1, 0), (0, 1))
    bases = [(0, 0, 0), *((n, *ij) for n in (0, 2) for ij in ties), *((1, *ij) for ij in wins)]
    bases += [(0, *ij) for ij in wins] if check else []
    # Products of series need all lower orders.
    kept = all_below(orders)
    raised = lambda base, up: (base[0] + sum(up), *(k + n for k, n in zip(base[1:], (*up, 0))))
    wanted = sorted({raised(base, order[:-1]) for base in bases for order in kept})
    factorial = lambda order: math.prod(map(math.factorial, order))

    def number(constant: Array) -> PowerSeries:
        """L, less something, as a series in the changes of the arguments."""
        last = (0,) * len(slopes) + (1,)
        zeros = {order: jnp.zeros(()) for order in kept}
        return PowerSeries(
            zeros | {k: jnp.ones(()) for k in kept if k == last} | {kept[0]: constant}
        )

    def block(index: Array | int) -> Array:
        weight, average = plan.averages(slopes, sizes, index, wanted)

        def series(*base: int) -> PowerSeries:
            term = lambda k: average[raised(base, k[:-1])] / factorial(k)
            return PowerSeries({k: jnp.zeros(()) if k[-1] else term(k) for k in kept})

        tie = lambda n: series(n, 2, 0) + series(n, 1, 0).times(-1) if single else series(n, 1, 1)
        both_win = lambda n: series(n, *wins[0]) * series(n, *wins[-1])
        log = series(0, 0, 0).log(_TINY)
        one = number(length) * (number(length - 1) * log).exp()
        two = number(length) * number(length - 1) * (number(length - 2) * log).exp()
        integrands = [one * tie(0), one * tie(2) + two * both_win(1)]
        integrands += [integrands[0] + two * both_win(0)] if check else []
        found = jnp.stack([factorial(k) * f.terms[k] for k in orders for f in integrands])
        return found.reshape(len(orders), len(integrands), -1) @ weight.reshape(-1)

    return sum_of(block, plan.blocks(sizes))
