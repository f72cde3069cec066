"""Moments of Wishart matrices as exact rational numbers, by the loop equation.

With W = XXᵀ, X being d × N with entries N(0, 1), integration by parts on one entry gives

    E[tr W^{k+1} Φ] = (N + k) E[tr W^k Φ] + Σ_{j<k} E[tr W^j tr W^{k−j} Φ]
                      + Σ_r 2k_r E[tr W^{k+k_r} Φ/tr W^{k_r}],   Φ = Π_r tr W^{k_r}.

The same step for a symmetric Gaussian matrix G with E G_ij² = 1 + δ_ij, which √N(S − I) becomes
for N → ∞, is E[tr G^{k+1} Φ] = k E[tr G^{k−1} Φ] + Σ_{j<k} E[tr G^j tr G^{k−1−j} Φ]
+ Σ_r 2k_r E[tr G^{k+k_r−1} Φ/tr G^{k_r}]. Derived in docs/theory/depth.md.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import cache, lru_cache

from .._check import check_whole

# A moment of degree n needs a number for each partition of n: the next degrees take seconds.
HIGHEST = 24


def white_moments(dim: int, length: int, highest: int) -> tuple[Fraction, ...]:
    """m_k = (1/d) E tr S^k for k = 0 … `highest`, S = XXᵀ/N, as exact fractions.

    **Arguments:**

    - `dim`, `length`: d and N.
    - `highest`: at most 24.

    ```pycon
    >>> [str(m) for m in icl.theory.depth.white_moments(5, 20, 4)]
    ['1', '1', '13/10', '201/100', '349/100']

    ```
    """
    dim, length = check_whole("dim", dim), check_whole("length", length)
    highest = check_whole("highest", highest, 0, HIGHEST)
    return tuple(
        Fraction(trace_moment(dim, length, (k,)), dim * length**k) for k in range(highest + 1)
    )


def trace_moment(dim: int, length: int, powers: tuple[int, ...]) -> int:
    """E Π_r tr W^{k_r} of W = XXᵀ, X being d × N with entries N(0, 1): a whole number.

    ```pycon
    >>> icl.theory.depth.trace_moment(2, 3, (1, 1))  # (Nd)² + 2Nd
    48

    ```
    """

    return _wishart(check_whole("dim", dim), check_whole("length", length))(tuple(powers))


def gaussian_trace_moment(dim: int, powers: tuple[int, ...]) -> int:
    """E Π_r tr G^{k_r} of a symmetric Gaussian d × d matrix with E G_ij² = 1 + δ_ij.

    ```pycon
    >>> icl.theory.depth.gaussian_trace_moment(5, (2,))  # d(d + 1)
    30

    ```
    """

    return _gaussian(check_whole("dim", dim))(tuple(powers))


@lru_cache(maxsize=16)
def _wishart(dim: int, length: int) -> Callable[[tuple[int, ...]], int]:
    def step(k: int, rest: tuple[int, ...]) -> int:
        value = (length + k) * of((k, *rest))
        value += sum(of((j, k - j, *rest)) for j in range(k))
        return value + _joined(k, rest, of, 0)

    of = _recursion(dim, step)
    return of


@lru_cache(maxsize=16)
def _gaussian(dim: int) -> Callable[[tuple[int, ...]], int]:
    def step(k: int, rest: tuple[int, ...]) -> int:
        value = k * of((k - 1, *rest)) if k else 0
        value += sum(of((j, k - 1 - j, *rest)) for j in range(k))
        return value + _joined(k, rest, of, -1)

    of = _recursion(dim, step)
    return of


def _joined(k: int, rest: tuple[int, ...], of: Callable, shift: int) -> int:
    """Σ_r 2k_r E[tr W^{k + k_r + shift} Φ/tr W^{k_r}]."""
    return sum(
        2 * power * of((k + power + shift, *rest[:r], *rest[r + 1 :]))
        for r, power in enumerate(rest)
    )


def _recursion(dim: int, step: Callable[[int, tuple[int, ...]], int]) -> Callable:
    """E Π tr W^{k_r} by a step that lowers the largest power; each value is computed once."""

    @cache
    def sorted_moment(powers: tuple[int, ...]) -> int:
        return step(powers[0] - 1, powers[1:]) if powers else 1

    def of(powers: tuple[int, ...]) -> int:
        ordered = tuple(sorted((k for k in powers if k), reverse=True))
        return dim ** (len(powers) - len(ordered)) * sorted_moment(ordered)

    return of
