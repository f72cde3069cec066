"""The best steps of L scalar layers: Gauss nodes, rational losses, and a bound with noise.

Without noise min R is the Christoffel function of the spectral measure at zero, and 1/γ_l are the
Gauss nodes x_l of s·ρ(s)ds. With noise R = Bayes + E[s u²/(s + c)] with a polynomial u of degree L
and u(−c) = 1; over all polynomials u = Π (x_l − s)/(x_l + c), with the same nodes, is best. Steps
γ that are real reach it if and only if every negative lobe of s·u(s) is c deep or more. Derived in
docs/theory/depth.md.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from jaxtyping import Float

from ...errors import Refusal
from ...tasks import LinearRegression
from .._check import check_whole
from ._search import find_lowest, find_root
from ._spectrum import ScalarTask, Sizes, Spectrum
from ._wishart import HIGHEST, white_moments


@dataclass(frozen=True, eq=False)
class OptimalStack:
    """The best L layers Γ_l = γ_lI.

    - `steps`: γ_l, increasing; every order of the layers is as good.
    - `risk`: R there, the excess loss over that of no layer.
    - `bound`: the smallest risk of any polynomial of the same degree, which complex steps reach.
    - `bayes`: the smallest risk of any predictor.
    - `exact`: whether real steps reach the bound. If not, `steps` are the best that were found.
    """

    steps: Float[np.ndarray, " L"]
    risk: float
    bound: float
    bayes: float
    exact: bool


class NotReached(Refusal):
    """Raised where real steps do not reach the bound, so that no formula gives the best ones.

    ```pycon
    >>> task = icl.tasks.isotropic(5, context=20, noise=1.0)
    >>> try:
    ...     icl.theory.depth.optimal_stack(task, 2)
    ... except icl.theory.depth.NotReached as refusal:
    ...     print(str(refusal)[:33])
    No 2 real steps reach the bound o

    ```
    """


def optimal_stack(task: ScalarTask, layers: int) -> OptimalStack:
    """The best steps where a formula gives them: always without noise, else if the bound is met.

    Where it is not, `best_steps` searches.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), context=20)
    >>> best = icl.theory.depth.optimal_stack(task, 3)
    >>> best.steps.round(6), round(best.risk, 8)
    (array([0.422409, 0.689126, 1.714217]), 0.02672169)

    ```
    """
    spectrum = Spectrum.of(task)
    steps = _real_steps(spectrum, check_whole("layers", layers))
    if steps is None:
        raise NotReached(
            f"No {layers} real steps reach the bound of their degree at this noise: `best_steps` "
            "searches for the best ones."
        )
    bound = stack_bound(spectrum, layers)
    return OptimalStack(steps, bound, bound, stack_bayes(spectrum), True)


def stack_bound(task: ScalarTask, layers: int) -> float:
    """The smallest risk of any polynomial of degree L: without noise that of the best steps.

    Bayes + 1/Σ_j π_j(−c)², π_j the orthonormal polynomials, j ≤ L, of s/(s + c)·ρ(s)ds.

    ```pycon
    >>> task = icl.tasks.isotropic(5, context=20, noise=0.25)
    >>> round(icl.theory.depth.stack_bound(task, 4), 7)
    0.0851218

    ```
    """
    return stack_bayes(task) + distance_from_bayes(task, layers)


def distance_from_bayes(task: ScalarTask, layers: int) -> float:
    """`stack_bound` less `stack_bayes`, without the cancellation: 1/Σ_j π_j(−c)².

    With noise, real steps stay above it by more and more as layers are added: see `stopped_flow`.

    ```pycon
    >>> task = icl.tasks.isotropic(5, context=20, noise=0.1)
    >>> round(icl.theory.depth.distance_from_bayes(task, 4), 6)
    0.008437

    ```
    """
    spectrum, layers = Spectrum.of(task), check_whole("layers", layers)
    s, c = spectrum.values, spectrum.cost
    if layers >= np.count_nonzero(s):
        return 0.0
    seen = s > 0
    s, measure = s[seen], spectrum.weights[seen] * s[seen] / (s[seen] + c)
    diagonal, off = _jacobi(s, measure, layers)
    # Orthonormal polynomials at −c, left of all nodes: terms of one sign, which do not cancel.
    values = [0.0, 1 / np.sqrt(measure.sum())]
    for j in range(layers):
        before = off[j - 1] * values[-2] if j else 0.0
        values.append(((-c - diagonal[j]) * values[-1] - before) / off[j])
    return float(1 / np.sum(np.square(values)))


def stack_bayes(task: ScalarTask) -> float:
    """The smallest risk of any predictor, E[c/(s + c)]; without noise the mass at s = 0.

    ```pycon
    >>> task = icl.tasks.isotropic(5, context=20, noise=0.25)
    >>> round(icl.theory.depth.stack_bayes(task), 6)
    0.079287

    ```
    """
    spectrum = Spectrum.of(task)
    s, c = spectrum.values, spectrum.cost
    # As a function that vanishes at zero: rules of limits are exact for those.
    return float(1 - spectrum.mean(np.sign(s) if c == 0 else s / (s + c)))


def rational_optimum(task: LinearRegression | Sizes, layers: int) -> Fraction:
    """R_L = det[m_{i+j}]_{0…L} / det[m_{i+j+2}]_{0…L−1} of a white task without noise, exactly.

    **Arguments:**

    - `layers`: at most 12.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), context=20)
    >>> str(icl.theory.depth.rational_optimum(task, 2))
    '359/4969'

    ```
    """
    sizes = Sizes.of(task)
    layers = check_whole("layers", layers, 1, HIGHEST // 2)
    if sizes.noise > 0:
        raise Refusal("`task` has noise: `stack_bound` has its optimum, in floating point.")
    m = white_moments(sizes.dim, sizes.length, 2 * layers)
    upper = [[m[i + j] for j in range(layers + 1)] for i in range(layers + 1)]
    lower = [[m[i + j + 2] for j in range(layers)] for i in range(layers)]
    below = determinant(lower)
    return determinant(upper) / below


def gauss_nodes(spectrum: Spectrum, layers: int) -> Float[np.ndarray, " L"]:
    """The Gauss nodes of s·ρ(s)ds, increasing: 1/γ of the best steps without noise.

    ```pycon
    >>> half = icl.theory.depth.Spectrum.proportional(0.5)
    >>> icl.theory.depth.gauss_nodes(half, 2).round(6)  # 3/2 ± 1/√2
    array([0.792893, 2.207107])

    ```
    """
    inside = spectrum.values > 0
    if layers > np.count_nonzero(inside):
        raise Refusal(
            f"`layers` = {layers}: the spectrum has {np.count_nonzero(inside)} values, and as many "
            "layers remove all loss."
        )
    measure = spectrum.values[inside] * spectrum.weights[inside]
    diagonal, off = _jacobi(spectrum.values[inside], measure, layers)
    matrix = np.diag(diagonal) + np.diag(off[: layers - 1], 1) + np.diag(off[: layers - 1], -1)
    return np.linalg.eigvalsh(matrix)


def _real_steps(spectrum: Spectrum, layers: int) -> np.ndarray | None:
    """1/γ = the zeros of p = (c + s u)/(s + c), increasing in γ; None if some are complex."""
    nodes = gauss_nodes(spectrum, layers)
    c = spectrum.cost
    if c == 0:
        return 1 / nodes[::-1]
    lobes = lambda s: c + s * np.prod((nodes - s) / (nodes + c))
    # s·u is negative between nodes 1 and 2, 3 and 4, …, and beyond the last if L is odd.
    zeros = []
    for left, right in zip(nodes[::2], nodes[1::2]):
        deepest, value = find_lowest(lobes, left, right, 1e-10 * right)
        if value > 0:
            return None
        zeros += [find_root(lobes, left, deepest)]
        zeros += [find_root(lobes, deepest, right)]
    if layers % 2:
        end = nodes[-1]
        while lobes(end) > 0:
            end *= 2
        zeros += [find_root(lobes, nodes[-1], end)]
    return 1 / np.array(zeros)[::-1]


def _jacobi(nodes: np.ndarray, measure: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The first `count` diagonal and off-diagonal entries of the Jacobi matrix of a measure.

    Lanczos with every vector made orthogonal to all before it, twice: to rounding.
    """
    basis = [np.sqrt(measure / measure.sum())]
    diagonal, off = np.zeros(count), np.zeros(count)
    for j in range(count):
        new = nodes * basis[-1]
        diagonal[j] = new @ basis[-1]
        for _ in range(2):
            known = np.array(basis)
            new = new - known.T @ (known @ new)
        off[j] = np.linalg.norm(new)
        if off[j] > 0:
            new = new / off[j]
        basis.append(new)
    return diagonal, off


def determinant(matrix: list[list[Fraction]]) -> Fraction:
    """The determinant of a positive definite matrix of fractions, by elimination."""
    rows, product = [row[:] for row in matrix], Fraction(1)
    for k in range(len(rows)):
        pivot = rows[k][k]
        product *= pivot
        for i in range(k + 1, len(rows)):
            share = rows[i][k] / pivot if pivot else Fraction(0)
            rows[i] = [a - share * b for a, b in zip(rows[i], rows[k])]
    return product
