"""Means of polynomials over the eigenvalues of a Wishart matrix, exactly.

S = (1/N) Σ xₙxₙᵀ with x ~ N(0, I) in D dimensions has the moments m_k = E (1/D) tr Sᵏ, which are
rational. Of a polynomial of degree 2n − 1 only the first 2n of them matter, and Gauss's rule with n
nodes has these (Golub and Welsch 1969).
"""

from fractions import Fraction
from functools import lru_cache

import numpy as np
from jaxtyping import Float


@lru_cache(maxsize=64)
def wishart_moments(dim: int, length: int, count: int) -> tuple[Fraction, ...]:
    """m_0 … m_{count−1}, by integration by parts (docs/theory/depth.md): with W = NS

    E tr W^{k+1} Φ = (N + k) E tr Wᵏ Φ + Σ_{j<k} E tr Wʲ tr W^{k−j} Φ
                     + Σ_r 2k_r E tr W^{k+k_r} Φ / tr W^{k_r},   Φ = Π_r tr W^{k_r}.
    """
    known: dict[tuple[int, ...], int] = {(): 1}

    def mean(powers: tuple[int, ...]) -> int:
        """E Π_r tr W^{k_r}, the k_r falling."""
        if powers in known:
            return known[powers]
        *rest, last = powers
        order = last - 1
        found = (length + order) * of(rest, order)
        found += sum(of(rest, j, order - j) for j in range(order))
        for r, power in enumerate(rest):
            found += 2 * power * of(rest[:r] + rest[r + 1 :], order + power)
        known[powers] = found
        return found

    def of(rest: list[int], *added: int) -> int:
        """The mean of a product of traces; tr W⁰ = D."""
        powers = sorted((power for power in (*rest, *added) if power), reverse=True)
        return dim ** added.count(0) * mean(tuple(powers))

    # From the first on, so that no call goes deep.
    return tuple(Fraction(of([], k), dim * length**k) for k in range(count))


@lru_cache(maxsize=64)
def wishart_rule(
    dim: int, length: int, count: int
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """The `count` nodes and weights with E (1/D) tr f(S) = Σ weights·f(nodes) for polynomials f of
    degree 2·`count` − 1."""
    centres, squares = _recurrence(wishart_moments(dim, length, 2 * count))
    alpha = np.array([float(each) for each in centres])
    beta = np.sqrt([float(each) for each in squares])
    nodes = np.linalg.eigvalsh(np.diag(alpha) + np.diag(beta, 1) + np.diag(beta, -1))
    # A weight is one over the sum of squares of the orthonormal polynomials at its node: far nodes
    # have tiny weights, which eigenvectors would not give to all digits.
    below, values = np.zeros_like(nodes), np.ones_like(nodes)
    total = np.ones_like(nodes)
    for k in range(count - 1):
        before = beta[k - 1] * below if k else 0.0
        below, values = values, ((nodes - alpha[k]) * values - before) / beta[k]
        total = total + values**2
    return nodes, 1 / total


def _recurrence(moments: tuple[Fraction, ...]) -> tuple[list[Fraction], list[Fraction]]:
    """The coefficients of the orthogonal polynomials (Chebyshev's algorithm), without rounding."""
    count = len(moments) // 2
    before, row = [Fraction(0)] * len(moments), list(moments)
    centres, squares = [row[1] / row[0]], []
    for k in range(1, count):
        square = squares[-1] if squares else Fraction(0)
        following = [Fraction(0)] * len(moments)
        for j in range(k, 2 * count - k):
            following[j] = row[j + 1] - centres[-1] * row[j] - square * before[j]
        centres.append(following[k + 1] / following[k] - row[k] / row[k - 1])
        squares.append(following[k] / row[k - 1])
        before, row = row, following
    return centres, squares
