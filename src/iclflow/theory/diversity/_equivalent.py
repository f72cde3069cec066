"""Training on n sequences: what the minimiser of the loss on the data costs, for any spectra.

Â minimises (1/n) Σ (y_q − βᵀAx_q)² + η‖A‖²: ridge regression on the features β ⊗ x_q, F = D² of
them, with the second moment Σ = C ⊗ Λ. Its errors are close to those of an equivalent with one
number ν, the effective penalty. It is the formula of ridge regression with these moments, and has
those of arXiv 2405.11751, 2509.26551 and 2510.04548 as its limits. That features as these behave
like Gaussian ones is checked, not proved (docs/theory/diversity.md).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ...errors import Refusal
from ...tasks import LinearRegression
from .._check import check_number, check_numbers
from .._moments import Normaliser, moments
from ._label_column import LabelColumn, extend_moments
from ._roots import falling_root
from ._types import Numbers, Values


class FeatureSpectrum(NamedTuple):
    """Σ = C ⊗ Λ in its eigenbasis, e_i ⊗ e_j, and what is learned there.

    - `left`, `right`: the eigenvectors of C and of Λ, as columns.
    - `values`: s_ij = c_iλ_j. `drive`: S_ij. `optimum`: A*_ij = S_ij/s_ij.
    - `floor`: L*.
    - `column`: the scale κ of the further features κG_yyx_q; 0 without them. Then C has D + 1 rows.
    """

    left: Float[np.ndarray, "R R"]
    right: Float[np.ndarray, "D D"]
    values: Float[np.ndarray, "R D"]
    drive: Float[np.ndarray, "R D"]
    floor: float
    column: float = 0.0

    @property
    def optimum(self) -> Float[np.ndarray, "R D"]:
        return self.drive / self.values


class DataRisks(NamedTuple):
    """The errors of training on n sequences, one entry for each n.

    - `ridge`: ν, the effective penalty; 0 without a penalty from n = D² on.
    - `train`: on the n sequences. `in_distribution`: on fresh sequences of the same tasks (IDG).
    - `test`: on another task; that of `in_distribution` if none was given.
    """

    ridge: Float[np.ndarray, "..."]
    train: Float[np.ndarray, "..."]
    in_distribution: Float[np.ndarray, "..."]
    test: Float[np.ndarray, "..."]


class TestMoments(NamedTuple):
    """A test in the eigenbasis of the training features: its moments and its constant."""

    __test__ = False  # for pytest, which collects classes by their names

    second: Float[np.ndarray, "R R"]
    inputs: Float[np.ndarray, "D D"]
    drive: Float[np.ndarray, "R D"]
    constant: float

    def loss(self, A: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """L_t(A) = const − 2⟨S_t, A⟩ + ⟨A, C_tAΛ_t⟩."""
        force = self.second @ A @ self.inputs - 2 * self.drive
        return np.asarray(self.constant + np.sum(A * force, (-2, -1)))

    @property
    def diagonal(self) -> Float[np.ndarray, "R D"]:
        """(e_iᵀC_te_i)(e_jᵀΛ_te_j)."""
        return np.multiply.outer(np.diag(self.second), np.diag(self.inputs))


def feature_spectrum(
    task: LinearRegression,
    normaliser: Normaliser = "context",
    label_column: LabelColumn | None = None,
) -> FeatureSpectrum:
    """The eigenvalues s_ij = c_iλ_j of the features β ⊗ x_q, and A* in their eigenbasis.

    **Arguments:**

    - `label_column`: further features κG_yyx_q, from `label_column`.

    ```pycon
    >>> task = icl.LinearRegression([1.0, 0.5], context=10, noise=0.1)
    >>> found = icl.theory.diversity.feature_spectrum(task)
    >>> print(np.round(found.values, 3))
    [[0.178 0.355]
     [0.63  1.26 ]]

    ```
    """
    m = moments(task, normaliser)
    scale, second, drive = 0.0, m.second_moment, m.drive
    if label_column is not None:
        scale, seen = label_column
        second, drive = extend_moments(scale, task, m, normaliser, seen)
    correlations, left = np.linalg.eigh(second)
    inputs, right = np.linalg.eigh(m.covariance)
    if not correlations[0] > 0:
        raise Refusal("`task` has labels that are always zero: there is nothing to learn.")
    drive, values = left.T @ drive @ right, np.multiply.outer(correlations, inputs)
    floor = m.label_variance - float(np.sum(drive**2 / values))
    return FeatureSpectrum(left, right, values, drive, floor, scale)


def effective_ridge(
    spectrum: FeatureSpectrum, sequences: Numbers, penalty: float = 0.0
) -> Float[np.ndarray, "..."]:
    """ν, the root of Σ s_ij/(s_ij + ν) + nη/ν = n; 0 if η = 0 and n ≥ D².

    **Arguments:**

    - `sequences`: n, real numbers from 1 up.
    - `penalty`: η ≥ 0.

    ```pycon
    >>> diversity = icl.theory.diversity
    >>> task = icl.LinearRegression([1.0, 0.5], context=10, noise=0.1)
    >>> spectrum = diversity.feature_spectrum(task)
    >>> diversity.effective_ridge(spectrum, [2, 4]).round(4).tolist()
    [0.4729, 0.0]

    ```
    """
    n = check_sequences(sequences)
    eta = check_number("penalty", penalty, "finite and not negative", lambda x: 0 <= x < np.inf)
    s = spectrum.values
    size, total, least = s.size, s.sum(), s.min()
    # s/(s + ν) lies between its bounds for the smallest s and for all s in one.
    low, high = np.maximum(eta, least * (size / n - 1)), total / n + eta
    free = (eta == 0) & (n >= size)
    low, high = np.where(free, 1.0, low), np.where(free, 1.0, high)

    def surplus(nu: np.ndarray) -> Values:
        return np.sum(s / (s + nu[..., None, None]), (-2, -1)) + n * (eta / nu - 1)

    return np.where(free, 0.0, falling_root(surplus, low, high))


def data_risks(
    task: LinearRegression,
    sequences: Numbers,
    penalty: float = 0.0,
    test: LinearRegression | None = None,
    normaliser: Normaliser = "context",
    label_column: LabelColumn | None = None,
) -> DataRisks:
    """The errors of the minimiser on n sequences: double descent at n = D² without a penalty.

    With k = s/(s + ν)²: E_IDG = (L* + ν² Σ A*²k)/(1 − Σ sk/n), E_train = (η/ν)² E_IDG, and
    E_test = L_t(Ā) + (E_IDG/n) Σ (e_iᵀC_te_i)(e_jᵀΛ_te_j) k_ij with Ā_ij = S_ij/(s_ij + ν).

    **Arguments:**

    - `sequences`: n; without a penalty errors are infinite at n = D².
    - `penalty`: η of η‖A‖²; 0 is least squares, of least norm below D² sequences.
    - `test`: any other task of the same dimension: other tasks, inputs, lengths or noise.
    - `label_column`: further features, from `label_column`; the threshold is then D(D + 1).

    ```pycon
    >>> diversity = icl.theory.diversity
    >>> task = icl.LinearRegression(np.ones(4), context=10, noise=0.1)
    >>> few = diversity.with_tasks(task, np.eye(4)[:2])
    >>> fresh = diversity.with_second_moment(task, np.eye(4) / 4)
    >>> risks = diversity.data_risks(few, [8, 15, 17, 64], test=fresh)
    >>> print(np.round(risks.test, 2))
    [ 1.37 10.93 11.97  1.02]

    ```
    """
    spectrum = feature_spectrum(task, normaliser, label_column)
    nu = effective_ridge(spectrum, sequences, penalty)
    n, s, optimum = np.asarray(sequences, dtype=np.float64), spectrum.values, spectrum.optimum
    at = nu[..., None, None]
    k = s / (s + at) ** 2
    with np.errstate(divide="ignore"):
        share = np.sum(s * k, (-2, -1)) / n
        inside = (spectrum.floor + nu**2 * np.sum(optimum**2 * k, (-2, -1))) / (1 - share)
    # Least squares leaves the share 1 − F/n, and nothing from n = D² down.
    with np.errstate(divide="ignore", invalid="ignore"):
        left = np.where(nu > 0, penalty / nu, np.maximum(1 - s.size / n, 0.0))
        train = np.where(left > 0, left**2 * inside, 0.0)
    inside = np.asarray(inside)
    if test is None:
        return DataRisks(nu, train, inside, inside)
    seen = moments_of_test(spectrum, test, normaliser)
    noise = inside / n * np.sum(seen.diagonal * k, (-2, -1))
    return DataRisks(nu, train, inside, np.asarray(seen.loss(spectrum.drive / (s + at)) + noise))


def phase_diagram(
    tasks: Sequence[LinearRegression],
    sequences: Numbers,
    test: LinearRegression | None = None,
    penalty: float = 0.0,
    normaliser: Normaliser = "context",
) -> Float[np.ndarray, "K n"]:
    """The test error for several sets of tasks (rows) and sizes of the data set (columns).

    ```pycon
    >>> diversity = icl.theory.diversity
    >>> task = icl.LinearRegression(np.ones(4), context=10, noise=0.1)
    >>> sets = [diversity.with_tasks(task, np.eye(4)[:k]) for k in (1, 4)]
    >>> fresh = diversity.with_second_moment(task, np.eye(4) / 4)
    >>> print(np.round(diversity.phase_diagram(sets, [8, 64], fresh), 2))
    [[1.55 1.2 ]
     [1.23 0.6 ]]

    ```
    """
    rows = [data_risks(task, sequences, penalty, test, normaliser).test for task in tasks]
    if not rows:
        raise Refusal("`tasks` is empty: must hold at least one task.")
    return np.stack(rows)


def moments_of_test(
    spectrum: FeatureSpectrum, test: LinearRegression, normaliser: Normaliser = "context"
) -> TestMoments:
    """C_t, Λ_t and S_t in the eigenbasis of the training features, and the loss at A = 0."""
    at = moments(test, normaliser)
    if at.drive.shape != spectrum.right.shape:
        raise Refusal(f"`test` has dimension {test.dim}: must be {len(spectrum.right)}.")
    second, drive = at.second_moment, at.drive
    if spectrum.column:
        second, drive = extend_moments(spectrum.column, test, at, normaliser)
    return TestMoments(
        spectrum.left.T @ second @ spectrum.left,
        spectrum.right.T @ at.covariance @ spectrum.right,
        spectrum.left.T @ drive @ spectrum.right,
        at.label_variance,
    )


def check_sequences(sequences: Numbers) -> Float[np.ndarray, "..."]:
    """How many sequences there are: finite numbers from 1 up."""
    n = check_numbers("sequences", sequences)
    if np.any(n < 1):
        raise Refusal(f"`sequences` = {n.tolist()}: must be at least 1.")
    return n
