"""In-context against in-weight learning: full linear attention trained on a mixture.

A head with value row (u; v) and key-query block (U; hᵀ) reads tokens z = (x; y), so that
ŷ = Σ θ_abc G_ab x_q,c with θ = Σ_heads (u; v) ⊗ (U; hᵀ) and G = (1/N)(Σ zzᵀ + z_q z_qᵀ). The
reduced model has v and U alone; only a path through u or h can store one w in the weights. The
moments are sums over pairings (Isserlis); a cubature rule that is exact for polynomials of degree 5
averages over w. Derived in docs/theory/linear.md.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..runtime.precision import require_float64
from ..tasks import LinearRegression, Mixture, RandomLabels, in_context_in_weight
from ._moments import Normaliser

RegressionTask = LinearRegression | Mixture | RandomLabels
Matrix = np.ndarray

# Relative rounding of sums over pairings.
_ZERO = 1e-12


class TokenMoments(NamedTuple):
    """The moments in the loss of full linear attention: L = θᵀ·second·θ − 2 drive·θ + label."""

    second: Float[np.ndarray, "a b e c d f"]
    drive: Float[np.ndarray, "a b e"]
    label: float

    def loss(self, coefficients: Float[np.ndarray, "a b e"]) -> float:
        """E(y_q − ŷ)² of attention with these coefficients θ."""
        response = np.tensordot(self.second, coefficients, 3)
        return float(np.sum(coefficients * (response - 2 * self.drive)) + self.label)


def token_moments(
    task: RegressionTask, normaliser: Normaliser = "context", self_attention: bool = True
) -> TokenMoments:
    """The exact moments E[G_ab x_q,c G_de x_q,f] and E[y_q G_ab x_q,c] of the features on a task.

    **Arguments:**

    - `task`: linear regression, a mixture of such tasks, or random context labels.
    - `normaliser`: what attention divides by: N, N + 1 (`"tokens"`), or 1 (`"none"`).
    - `self_attention`: whether the query attends to itself.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=10, noise=0.123)
    >>> moments = icl.theory.token_moments(task)
    >>> moments.drive.shape
    (3, 3, 2)
    >>> # The loss of predicting zero is the variance of a label, tr Λ + σ².
    >>> round(moments.loss(np.zeros((3, 3, 2))), 4)
    1.123
    ```
    """
    require_float64("The theory of in-weight learning", task=task)
    if isinstance(task, Mixture):
        parts = [token_moments(part, normaliser, self_attention) for part in task.components]
        return _blend(np.asarray(task.probabilities), parts)
    inputs = task.inputs if isinstance(task, RandomLabels) else task
    weights, vectors, covariances = _nodes(task)
    query = np.pad(np.asarray(inputs.covariance), (0, 1))
    tokens = {
        0: np.array(1.0),
        1: np.einsum("k,kab->ab", weights, covariances),
        2: np.einsum("k,kab,kcd->abcd", weights, covariances, covariances, optimize=True),
    }
    label = float(np.einsum("k,ki,ij,kj", weights, vectors, query[:-1, :-1], vectors))
    if isinstance(task, LinearRegression):
        label += float(task.query_noise)

    lengths, shares = np.array(inputs.contexts), np.asarray(inputs.context_probabilities)
    scale = {"context": lengths, "tokens": lengths + 1, "none": np.ones_like(lengths)}[normaliser]
    averaged = np.einsum("k,kab,ki,ic->abc", weights, covariances, vectors, query[:-1, :-1])
    drive = shares @ (lengths / scale) * averaged
    # Sources of the six factors G_ab G_cd x_e x_f: context tokens 1 and 2, the query q.
    sources = {"1111qq": lengths, "1122qq": lengths * (lengths - 1)}
    if self_attention:
        sources |= {"11qqqq": lengths, "qq11qq": lengths, "qqqqqq": np.ones_like(lengths)}
        fourth = _expectation("qqqq", tokens, query)[:, :, :-1, :-1]
        drive += shares @ (1 / scale) * fourth @ (weights @ vectors)
    second = np.zeros((task.dim + 1,) * 6)
    for source, count in sources.items():
        second += shares @ (count / scale**2) * _expectation(source, tokens, query)
    return TokenMoments(second[..., :-1, :-1].transpose(0, 1, 4, 2, 3, 5), drive, label)


def _blend(shares: Matrix, parts: Sequence[TokenMoments]) -> TokenMoments:
    second, drive, label = (np.tensordot(shares, np.stack(p), 1) for p in zip(*parts))
    return TokenMoments(second, drive, float(label))


def _nodes(task: LinearRegression | RandomLabels) -> tuple[Matrix, Matrix, Matrix]:
    """Task vectors and their weights, exact up to degree 5, and the token covariance at each.

    For N(0, I): the origin, ±√3 eᵢ, and √3(±eᵢ ± eⱼ) (McNamee and Stenger, Numer. Math. 10, 1967).
    """
    dim = task.dim
    if isinstance(task, RandomLabels):
        token = np.pad(np.asarray(task.inputs.covariance), (0, 1))
        token[-1, -1] = task.label_variance
        return np.ones(1), np.asarray(task.weight)[None], token[None]
    unit = np.eye(dim)
    single = [s * unit[i] for i in range(dim) for s in (1, -1)]
    double = [
        s * unit[i] + t * unit[j]
        for i in range(dim)
        for j in range(i)
        for s in (1, -1)
        for t in (1, -1)
    ]
    points = np.sqrt(3) * np.array([np.zeros(dim), *single, *double])
    weights = np.concatenate(
        [[0.0], np.full(len(single), (4 - dim) / 18), np.full(len(double), 1 / 36)]
    )
    weights[0] = 1 - weights.sum()
    values, basis = np.linalg.eigh(np.asarray(task.prior_covariance))
    vectors = np.asarray(task.prior_mean) + points * np.sqrt(np.maximum(values, 0)) @ basis.T
    inputs = np.asarray(task.covariance)
    # y = w·x + ε: a token is x seen through the matrix (I; wᵀ), and noise on the label.
    maps = np.concatenate([np.broadcast_to(unit, (len(vectors), dim, dim)), vectors[:, None]], 1)
    covariances = np.einsum("kai,ij,kbj->kab", maps, inputs, maps, optimize=True)
    covariances[:, -1, -1] += task.noise
    return weights, vectors, covariances


def _pairings(slots: tuple[int, ...]) -> Iterator[list[tuple[int, int]]]:
    """Every way to group `slots` in pairs."""
    if not slots:
        yield []
        return
    for partner in slots[1:]:
        rest = tuple(slot for slot in slots[1:] if slot != partner)
        for others in _pairings(rest):
            yield [(slots[0], partner), *others]


def _expectation(source: str, tokens: dict[int, Matrix], query: Matrix) -> Matrix:
    """E over tokens, query and w of a product of Gaussians, one axis for each factor.

    **Arguments:**

    - `source`: for each factor the vector that it is a component of; `q` is the query.
    - `tokens`: by k, the average over w of a product of k token covariances.
    - `query`: the covariance of the query token.
    """
    names = "abcdef"[: len(source)]
    total = np.zeros((len(query),) * len(source))
    for pairs in _pairings(tuple(range(len(source)))):
        if any(source[i] != source[j] for i, j in pairs):
            continue  # different vectors are independent given w
        labels = [names[i] + names[j] for i, j in pairs if source[i] != "q"]
        queries = [names[i] + names[j] for i, j in pairs if source[i] == "q"]
        operands = [tokens[len(labels)], *(query for _ in queries)]
        recipe = ",".join(["".join(labels), *queries]) + "->" + names
        total += np.einsum(recipe, *operands)
    return total


def steady_state(moments: TokenMoments) -> Float[np.ndarray, "a b e"]:
    """θ* = second⁻¹ drive, the coefficients of smallest loss; where several share it, the shortest.

    D + 1 merged heads can represent every θ, so training with them can end here.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=12)
    >>> moments = icl.theory.token_moments(task, self_attention=False)
    >>> round(moments.loss(icl.theory.steady_state(moments)), 5)
    0.19941
    >>> round(icl.theory.optimal_loss(task), 5)
    0.19941
    ```
    """
    size = moments.drive.size
    # The features of (a, b) and (b, a) are the same, so half of this matrix is redundant, and
    # more where w is fixed; least squares then finds the symmetric θ of least norm.
    gram, drive = moments.second.reshape(size, size), moments.drive.reshape(size)
    best = np.linalg.lstsq(gram, drive, rcond=1e-11)[0]
    return best.reshape(moments.drive.shape)


class InWeightLosses(NamedTuple):
    """Losses at the end of training on a mixture, one entry for each fraction p."""

    fraction: Float[np.ndarray, " P"]
    train: Float[np.ndarray, " P"]
    in_context: Float[np.ndarray, " P"]
    in_weight: Float[np.ndarray, " P"]


def in_weight_losses(
    task: LinearRegression,
    fractions: Sequence[float],
    fixed_weight: Sequence[float] | None = None,
    label_variance: float = 1.0,
) -> InWeightLosses:
    """Losses of the `steady_state` θ* = second⁻¹ drive, trained on a fraction p of sequences with
    random w and 1 − p with one fixed w.

    At p = 0 many coefficients are equally good, and the entry is the one of least norm: it reads w
    from the weights alone. The limit p → 0 has the same training loss but other test losses,
    because the smallest share of random w decides between them.

    **Arguments:**

    - `task`: the distribution of sequences with a random w.
    - `fractions`: the values of p.
    - `fixed_weight`: the w of the other sequences, by default (1, …, 1).
    - `label_variance`: of the random context labels in the in-weight test.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.5, 0.5], context=20)
    >>> losses = icl.theory.in_weight_losses(task, fractions=[0.0, 0.5, 1.0])
    >>> losses.in_context.round(3)
    array([1.957, 0.149, 0.13 ])
    >>> losses.in_weight.round(3)
    array([0.043, 1.019, 1.076])
    ```
    """
    fixed = in_context_in_weight(task, 0.0, fixed_weight)
    assert isinstance(fixed, LinearRegression)
    probe = RandomLabels(task, fixed.prior_mean, label_variance)
    in_context, in_weight, memory = map(token_moments, (task, probe, fixed))
    rows = []
    for p in fractions:
        mixed = _blend(np.array([p, 1 - p]), [in_context, memory])
        theta = steady_state(mixed)
        rows.append([p, mixed.loss(theta), in_context.loss(theta), in_weight.loss(theta)])
    return InWeightLosses(*np.array(rows).T)


def in_weight_floor(dim: int, context: int, random_labels: bool = False) -> float:
    """The smallest loss for one fixed w and white, noiseless inputs, as a share of E y_q².

    2/((N+1)D + 4), or with random labels 2/((N+1)D + 4 + N), whatever their variance. It is not
    zero because attention has no bias: it can weigh w·x_q only with G, which fluctuates. Random
    labels lower it: their squares are one more estimate of a constant.

    **Example:**

    ```pycon
    >>> round(icl.theory.in_weight_floor(dim=2, context=20), 4)
    0.0435
    >>> task = icl.LinearRegression(eigenvalues=[0.5, 0.5], context=20)
    >>> losses = icl.theory.in_weight_losses(task, fractions=[0.0])
    >>> losses.train.round(4)
    array([0.0435])
    ```
    """
    return 2 / ((context + 1) * dim + 4 + (context if random_labels else 0))


def escape_rate(task: RegressionTask, normaliser: Normaliser = "context") -> float:
    """The rate of escape of full merged attention from the origin: weights grow as e^(rate·t/τ).

    It is the top singular value of E[y_q G_ab x_c], unfolded as (a) × (b, c).

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.5, 0.5], context=20)
    >>> for fraction in (0.0, 0.5, 1.0):
    ...     print(round(icl.theory.escape_rate(icl.in_context_in_weight(task, fraction)), 3))
    ...
    1.079
    0.669
    0.354
    >>> round(icl.theory.growth_rate(task), 3)
    0.354
    ```
    """
    drive = token_moments(task, normaliser).drive
    return float(np.linalg.norm(drive.reshape(len(drive), -1), 2))


def white_escape_rate(dim: int, eigenvalue: float, fraction: float) -> float:
    """The escape rate for white inputs, Λ = λI and |w_fixed|² = D, to leading order in 1/N.

    **Example:**

    ```pycon
    >>> round(icl.theory.white_escape_rate(dim=2, eigenvalue=0.5, fraction=0.5), 4)
    0.6579
    >>> task = icl.LinearRegression(eigenvalues=[0.5, 0.5], context=10000)
    >>> round(icl.theory.escape_rate(icl.in_context_in_weight(task, 0.5)), 4)
    0.6579
    ```
    """
    p, q = fraction, 1 - fraction
    mean = p + q * dim
    cross = (1 + dim) * mean * q * np.sqrt(dim)
    matrix = [
        [q**2 * dim + mean**2, cross],
        [cross, (dim - 1) * p**2 + mean**2 + dim**3 * q**2],
    ]
    return float(eigenvalue**2 * np.sqrt(np.linalg.eigvalsh(matrix)[-1]))


def moving_blocks(task: RegressionTask) -> frozenset[str]:
    """Which of the blocks u, v, U, h move in training that starts with u = h = 0.

    Flipping the sign of all labels flips that of θ_xx and θ_yy, the products with one of u and h.
    A task that is invariant under the flip never drives them, and v and U move alone.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.5, 0.5], context=20)
    >>> sorted(icl.theory.moving_blocks(task))
    ['U', 'v']
    >>> sorted(icl.theory.moving_blocks(icl.in_context_in_weight(task, 0.5)))
    ['U', 'h', 'u', 'v']
    ```
    """
    moments = token_moments(task)
    size = len(moments.drive)
    label = np.zeros(size, bool)
    label[-1] = True
    odd = label[:, None] ^ label  # (a, b) with exactly one label: the reduced model's θ
    driven = np.max(np.abs(moments.drive[~odd]))
    coupled = np.max(np.abs(moments.second.transpose(0, 1, 3, 4, 2, 5)[~odd][:, odd]))
    # Moments that vanish by symmetry are sums of terms of this size, which cancel to rounding.
    scale = np.max(np.abs(moments.second))
    still = driven <= _ZERO * scale**0.5 * moments.label**0.5 and coupled <= _ZERO * scale
    return frozenset("vU" if still else "uvUh")
