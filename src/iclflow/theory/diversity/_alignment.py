"""Task alignment: how well a layer trained on some tasks does on others (arXiv 2509.26551).

At the optimum R(A*) has the eigenvectors of M̂, and its eigenvalues fall with m_j: the alignment of
a test is what it weighs them with. In the population matched tasks are best; on a finite data set
they need not be, which `data_risks` computes for any pair (derived in docs/theory/diversity.md).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ...tasks import LinearRegression
from .._moments import Normaliser, context_gains, moments
from ._components import components, require_same_inputs


class Alignment(NamedTuple):
    """The risk of a test on the optimum of a task, by direction.

    L_t = `constant` + Σ_j t_j `within`_j + t_out `outside`, with the shares t of the test's label
    power: `shares`, and `outside_share` for what no training task shows.
    """

    constant: float
    within: Float[np.ndarray, " J"]
    outside: float
    shares: Float[np.ndarray, " J"]
    outside_share: float

    @property
    def loss(self) -> float:
        """L_t(A*)."""
        return float(self.constant + self.shares @ self.within + self.outside_share * self.outside)


def alignment(
    task: LinearRegression, test: LinearRegression, normaliser: Normaliser = "context"
) -> Alignment:
    """The risk of a test, split along the components of training; the test has the same inputs.

    R_j = 1 − 2ḡf_j + c̄₂f_j² + c̄₁Σ_if_i² (1 + c̄₁Σ_if_i² outside their span) and the constant
    σ_q² + c̄₁σ²Σ_if_i²; for one length R_j = (1 − f_j)² + (f_j² + Σ_if_i²)/N.

    ```pycon
    >>> diversity = icl.theory.diversity
    >>> task = icl.LinearRegression(np.ones(4), context=10, noise=0.1)
    >>> few = diversity.with_tasks(task, [[1.0, 0, 0, 0], [0, 0.5, 0, 0]])
    >>> fresh = diversity.with_second_moment(task, np.eye(4) / 4)
    >>> found = diversity.alignment(few, fresh)
    >>> print(np.round(found.within, 3), round(found.outside, 3), round(found.loss, 3))
    [0.203 0.299] 1.1 0.786

    ```
    """
    at, gains = moments(test, normaliser), context_gains(test, normaliser)
    require_same_inputs(task, at)
    found = components(task, normaliser)
    f, size = found.strengths, float(np.sum(found.strengths**2))
    loads = found.inverse_root @ at.covariance @ found.directions
    shares = np.einsum("dj,de,ej->j", loads, at.weight_second_moment, loads)
    power = float(np.sum(at.covariance * at.weight_second_moment))
    outside = 1 + gains.spread * size
    return Alignment(
        float(test.query_noise + gains.spread * test.noise * size),
        outside - 2 * gains.drive * f + gains.signal * f**2,
        outside,
        shares,
        power - float(shares.sum()),
    )
