"""Measurements on the heads of attention, of one model or at every point of a run.

Every argument may have axes for points in front, and the result then has them, too: a run is
measured in one call.
"""

import numpy as np
from jaxtyping import ArrayLike, Float

from ..circuits import Circuits

# With scores below this size, attention is nearly the same for all tokens (e^0.3 = 1.35).
_FLAT = 0.3


def zero_sum(mu: Float[np.ndarray, "*points H"]) -> Float[np.ndarray, "*points"]:
    """|Σ μ_h| / Σ |μ_h|: 0 where the output-value entries cancel.

    **Example:**

    ```pycon
    >>> icl.analysis.zero_sum(np.array([3.45, -3.45])), icl.analysis.zero_sum(np.array([2.0, 1.0]))
    (array(0.), array(1.))
    ```
    """
    return ratio(np.abs(mu.sum(-1)), np.abs(mu).sum(-1))


def pair_balance(
    omega: Float[np.ndarray, "*points H"], mu: Float[np.ndarray, "*points H"]
) -> Float[np.ndarray, "*points"]:
    """|Σ₊ μω − Σ₋ μω| / Σ |μω|: 0 where positive and negative heads contribute equally to the
    step, 1 where all heads have one sign.

    **Example:**

    ```pycon
    >>> icl.analysis.pair_balance(np.array([0.13, -0.13]), np.array([3.45, -3.45]))
    array(0.)
    >>> icl.analysis.pair_balance(np.array([0.13, 0.13]), np.array([3.45, 3.45]))
    array(1.)
    ```
    """
    product = mu * omega
    return ratio(np.abs(np.sum(product * np.sign(omega), -1)), np.abs(product).sum(-1))


def head_shares(
    strengths: Float[np.ndarray, "*points H I"],
) -> Float[np.ndarray, "*points H I"]:
    """The strength of each head on a task as a share of all heads, with its sign.

    **Example:**

    ```pycon
    >>> icl.analysis.head_shares(np.array([[3.0, 0.0], [-1.0, 2.0]]))
    array([[ 0.75,  0.  ],
           [-0.25,  1.  ]])
    ```
    """
    return ratio(strengths, np.sum(np.abs(strengths), -2, keepdims=True))


def head_sizes(found: Circuits) -> Float[np.ndarray, "*points H"]:
    """The Frobenius norm of each key-query circuit.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> pair = icl.Attention(icl.Diagonal(omega=[0.13, -0.13], mu=[3.45, -3.45], dim=5))
    >>> icl.analysis.head_sizes(icl.analysis.circuits(pair, task)).round(4)
    array([0.2907, 0.2907])
    ```
    """
    return np.linalg.norm(found.attention, axis=(-2, -1))


def diagonal_shares(found: Circuits) -> Float[np.ndarray, "*points H"]:
    """‖diag W‖ / ‖key-query circuit‖ of each head, including the rows on labels.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> pair = icl.Attention(icl.Diagonal(omega=[0.13, -0.13], mu=[3.45, -3.45], dim=5))
    >>> icl.analysis.diagonal_shares(icl.analysis.circuits(pair, task))
    array([1., 1.])
    ```
    """
    return ratio(np.linalg.norm(found.diagonals, axis=-1), head_sizes(found))


def label_shares(found: Circuits, label: int = 0) -> Float[np.ndarray, "*points H"]:
    """|μ| / ‖(u; μ)‖ of each head on a label: 1 for a head that reads labels alone.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> pair = icl.Attention(icl.Diagonal(omega=[0.13, -0.13], mu=[3.45, -3.45], dim=5))
    >>> icl.analysis.label_shares(icl.analysis.circuits(pair, task))
    array([1., 1.])
    ```
    """
    rows = np.linalg.norm(found.values[..., label, :], axis=-1)
    return ratio(np.abs(found.mu[..., label]), rows)


def component_strengths(found: Circuits) -> Float[np.ndarray, "*points H D"]:
    """The part of each head in the strength e_dᵀ A e_d of each component, for one label.

    **Arguments:**

    - `found`: circuits in the basis of the components; see `component_circuits`.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=31)
    >>> model = icl.Attention.separate(jr.key(0), dim=2, heads=3)
    >>> parts = icl.analysis.component_strengths(icl.analysis.component_circuits(model, task))
    >>> np.allclose(parts.sum(0), model.coefficients().diagonal())
    True
    ```
    """
    values = found.values[..., 0, :]
    # Heads that read inputs and attend to labels add (u·β)(h·x_q).
    crossed = values[..., : found.dim] * found.attention[..., found.dim, :]
    return values[..., found.dim :] * found.diagonals + crossed


def component_shares(found: Circuits) -> Float[np.ndarray, "*points H D"]:
    """The share of the squared norm of each key-query circuit along each component: 1 where key and
    query both point along it.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=31)
    >>> model = icl.Attention.separate(jr.key(0), dim=2, heads=3)
    >>> found = icl.analysis.component_circuits(model, task)
    >>> icl.analysis.component_shares(found).shape
    (3, 2)
    ```
    """
    return ratio(found.diagonals**2, np.sum(found.attention**2, (-2, -1))[..., None])


def unmixed_share(found: Circuits) -> Float[np.ndarray, "*points"]:
    """The share of ‖A‖² on the diagonal, with A of all heads together for one label.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=31)
    >>> model = icl.Attention.merged(jr.key(0), dim=2, heads=1, scheme="identity")
    >>> found = icl.analysis.component_circuits(model, task)
    >>> icl.analysis.unmixed_share(found).round(6)
    np.float64(1.0)
    ```
    """
    matrix = found.together[..., 0, :, :]
    diagonal = np.diagonal(matrix, axis1=-2, axis2=-1)
    return ratio(np.sum(diagonal**2, -1), np.sum(matrix**2, (-2, -1)))


def averages_labels(found: Circuits, variance: float, context: int, least: float) -> bool:
    """Whether all heads of one model together average the labels of the context.

    **Arguments:**

    - `variance`: the mean variance of the inputs.
    - `context`: the length of the contexts; the mean label is of size 1/√length.
    - `least`: the least that this mean must add to predictions, and the most that inputs may add.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=2, context=10)
    >>> flat = icl.Attention(icl.Diagonal(omega=[0.0], mu=[1.0], dim=2))
    >>> icl.analysis.averages_labels(icl.analysis.circuits(flat, task), 1.0, 10, least=0.1)
    True
    ```
    """
    scores = variance * head_sizes(found)
    *inputs, labels = found.values[:, 0].sum(0)
    mean = np.abs(labels) / np.sqrt(context)
    return bool(scores.max() <= _FLAT and mean >= least > np.linalg.norm(inputs))


def ratio(part: ArrayLike, whole: ArrayLike) -> np.ndarray:
    """part / whole, and 0 where the whole is 0."""
    part, whole = np.asarray(part), np.asarray(whole)
    return np.asarray(part / np.where(whole > 0, whole, 1.0))
