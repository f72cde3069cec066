"""The exact risk of diagonal stacks at finite context, by Isserlis' theorem over pairings.

E tr(S D_1 S D_2 … S D_n) with S = (1/N) Σ xₙxₙᵀ, x ~ N(0, Λ), is a sum over the (2n − 1)!! pairings
of 2n factors x: each gives N^{loops − n}, the loops being those of samples, and one trace
t_B = Σ_k Π_{i∈B} λ_kD_ik for each loop of indices, where all D are diagonal beside Λ. The risk is a
sum of such words over all subsets of layers. Derived in docs/theory/depth.md.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

import numpy as np

from ...errors import Refusal
from ...tasks import LinearRegression
from .._check import HeadsLike, check_numbers
from .._moments import AlignedMoments, aligned_moments
from .._softmax_setting import only_length

# Words of 2L matrices have (4L − 1)!! pairings: 10 395 for three layers, two million for four.
MOST_LAYERS = 3
# N^{−power} of the term and its blocks, with the number of pairings that give it.
_Terms = tuple[tuple[int, tuple[tuple[int, ...], ...], int], ...]


def diagonal_stack_loss(task: LinearRegression, steps: HeadsLike) -> float:
    """The exact loss of up to three layers that are diagonal in the common eigenbasis of Λ and M.

    Layers are not equivalent here: their order matters at order 1/N.

    **Arguments:**

    - `steps`: γ_lk, the first layer first, eigendirections of Λ from the largest eigenvalue down.

    ```pycon
    >>> task = icl.LinearRegression([0.4, 0.3, 0.2, 0.1], context=31)
    >>> steps = [[1.0, 2, 3, 4], [2, 2, 2, 2]]
    >>> round(icl.theory.depth.diagonal_stack_loss(task, steps), 10)
    0.1022574603

    ```
    """
    found = aligned_moments(task)
    steps = check_numbers("steps", steps, 2)
    if steps.shape[1] != len(found.eigenvalues) or len(steps) > MOST_LAYERS:
        raise Refusal(
            f"`steps` has shape {steps.shape}: must be (layers, {len(found.eigenvalues)}), with at "
            f"most {MOST_LAYERS} layers."
        )
    noise = float(task.noise) / only_length(task)
    return float(task.query_noise) + float(diagonal_excess(found, only_length(task), noise, steps))


def diagonal_excess(
    found: AlignedMoments, length: int, noise: float, steps: np.ndarray
) -> np.inexact:
    """The excess loss, also for complex steps, by which it is differentiated.

    With Π = (1 − Γ_LS)…(1 − Γ_1S), w_L = Vb and VS = I − Π, it is E tr ΛΠMΠᵀ + (σ²/N) E tr ΛVSVᵀ.

    **Arguments:**

    - `noise`: σ²/N.
    """
    eigenvalues, prior = found.eigenvalues, found.weight_eigenvalues
    total = eigenvalues @ prior + 0 * steps[0, 0]
    layers = range(len(steps))
    subsets = [c for n in range(len(steps) + 1) for c in itertools.combinations(layers, n)]
    for left, right in itertools.product(subsets, subsets):
        sign = (-1) ** (len(left) + len(right))
        for word, factor in _words(left, right, steps, eigenvalues, prior, noise):
            total = total + sign * factor * _word(word, eigenvalues, length)
    return total


def _words(
    left: tuple[int, ...],
    right: tuple[int, ...],
    steps: np.ndarray,
    eigenvalues: np.ndarray,
    prior: np.ndarray,
    noise: float,
) -> Iterator[tuple[list[np.ndarray], float]]:
    """The matrices between the S of tr Λ(Γ_{a_i}S…Γ_{a_1}S)M(SΓ_{b_1}…SΓ_{b_j}), and of the noise.

    In the noise M is left out, and with it one S.
    """
    if not left and not right:
        return
    outer = eigenvalues.copy() + 0 * steps[0]
    for group in (left, right):
        if group:
            outer = outer * steps[group[-1]]
    inner = [steps[a] for a in left[-2::-1]], [steps[b] for b in right[:-1]]
    if left and right:
        yield [*inner[0], prior, *inner[1], outer], 1.0
        if noise:
            yield [*inner[0], *inner[1], outer], noise
    else:  # one side is empty, so that M stands beside Λ
        yield [*inner[0], *inner[1], prior * outer], 1.0


def _word(matrices: list[np.ndarray], eigenvalues: np.ndarray, length: int) -> np.inexact:
    """E tr(S D_1 … S D_n) of diagonal D, x ~ N(0, Λ)."""
    scaled = np.array(matrices) * eigenvalues
    traces = {block: np.prod(scaled[list(block)], axis=0).sum() for block in _blocks(len(matrices))}
    return np.sum(
        [
            count * float(length) ** -power * np.prod([traces[block] for block in blocks])
            for power, blocks, count in _terms(len(matrices))
        ]
    )


@cache
def _blocks(size: int) -> frozenset[tuple[int, ...]]:
    """All blocks that occur in a word of this size."""
    return frozenset(block for _, blocks, _ in _terms(size) for block in blocks)


@cache
def _terms(size: int) -> _Terms:
    """The pairings of a word of `size` matrices S, those that give the same product together."""
    counts: dict[tuple[int, tuple[tuple[int, ...], ...]], int] = defaultdict(int)
    # S_j has the ends 2j and 2j + 1; D_j lies between the ends 2j + 1 and 2j + 2.
    samples = {end: end ^ 1 for end in range(2 * size)}
    between = {end: (end + 1 if end % 2 else end - 1) % (2 * size) for end in range(2 * size)}
    for pairing in _pairings(tuple(range(2 * size))):
        power = size - len(_loops(pairing, samples))
        loops = _loops(pairing, between)
        # The matrix at an even end 2j + 2 is D_j.
        blocks = tuple(
            sorted(tuple(sorted({((end - 1) % (2 * size)) // 2 for end in loop if end % 2 == 0}))
                   for loop in loops)
        )  # fmt: skip
        counts[power, blocks] += 1
    return tuple((power, blocks, count) for (power, blocks), count in counts.items())


def _pairings(ends: tuple[int, ...]) -> Iterator[dict[int, int]]:
    """All ways to pair the ends, as maps from each end to its partner."""
    if not ends:
        yield {}
        return
    first, rest = ends[0], ends[1:]
    for place, partner in enumerate(rest):
        for others in _pairings(rest[:place] + rest[place + 1 :]):
            yield {first: partner, partner: first, **others}


def _loops(pairing: dict[int, int], other: dict[int, int]) -> list[set[int]]:
    """The loops of two pairings of the same ends."""
    left, loops = set(pairing), []
    while left:
        start = end = min(left)
        loop: set[int] = set()
        while True:
            loop |= {end, pairing[end]}
            end = other[pairing[end]]
            if end == start:
                break
        loops.append(loop)
        left -= loop
    return loops
