"""Risk on fresh queries: the context is averaged over too, by quadrature.

Given the query q, the output of a head depends on its weights through the score vector W_h q alone,
and a quadratic loss needs the first and second moments of the outputs of two heads, no more.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..models import AbstractModel, Attention
from ..runtime.precision import require_float64
from ..tasks import AbstractRegression, AbstractTask, check_count
from ._batch import AbstractBatchRisk, AbstractSampledRisk
from ._check import is_softmax_over_context
from ._draws import Inputs, LabelMoments, normals
from ._lane_batches import output_circuits, require_blind
from ._query_quadrature import Averages, Resolution
from ._sampled import labels_can_be_integrated


def contexts_can_be_integrated(task: AbstractTask, model: AbstractModel) -> bool:
    """Whether `QuerySampledRisk` exists for this task and this model."""
    return labels_can_be_integrated(task, model) and is_softmax_over_context(model)


class QuerySampledRisk(AbstractSampledRisk):
    """The mean over `batch` fresh queries of the loss averaged over contexts and labels.

    It has far less noise than any other sampled risk, and each sample costs far more: it pays if
    there can be few samples. It exists for softmax attention whose weights do not depend on the
    labels and in which the query does not attend to itself, with any key-query matrices, on linear
    regression with one label or several. `resolution`: of the quadrature.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> pair = icl.Attention(icl.Diagonal(omega=[0.13, -0.13], mu=[3.45, -3.45], dim=5))
    >>> mean = icl.QuerySampledRisk(task).estimate(pair, jr.key(0), count=500)
    >>> bool(abs(mean.value - icl.risk(task, pair)(pair)) < 4 * mean.standard_error)
    True
    ```
    """

    task: AbstractRegression
    inputs: Inputs
    labels: LabelMoments
    batch: int = eqx.field(static=True)
    resolution: Resolution = eqx.field(static=True)

    def __init__(
        self,
        task: AbstractRegression,
        batch: int = 64,
        resolution: Resolution = Resolution(),
    ):
        require_float64("The mean over contexts", task=task)
        self.task = task
        self.inputs = Inputs.of(task)
        self.labels = LabelMoments.of(task)
        self.batch = check_count("batch", batch, least=2)
        self.resolution = resolution

    def draw(self, key: PRNGKeyArray, count: int) -> "QueryBatchRisk":
        white = normals(key, (self.inputs.dim, count), jnp.float64)
        return QueryBatchRisk(
            self.inputs.root.times(white).T, self.inputs, self.labels, self.resolution
        )


class QueryBatchRisk(AbstractBatchRisk):
    """The loss at given queries, averaged over contexts and labels."""

    queries: Float[Array, "P D"]
    inputs: Inputs
    labels: LabelMoments
    resolution: Resolution = eqx.field(static=True)

    def evaluate(self, model: AbstractModel) -> Float[Array, " count"]:
        model = require_blind(model)
        if not is_softmax_over_context(model):
            raise TypeError(
                "Contexts are averaged over for softmax attention in which the query does not "
                "attend to itself: use IntegratedRisk."
            )
        heads = _WhiteHeads.of(model, self.inputs.root.matrix, self.labels, self.queries)
        length = jnp.asarray(self.inputs.contexts, self.queries.dtype)
        found = Averages.of(heads.scores, length, self.inputs.probabilities, self.resolution)
        first, second, own = found.first, found.second, np.arange(heads.scores.shape[1])
        # Each pair of heads once: the other order has the same moments, hence the factors of 2.
        forms = heads.forms(first, second)
        return (
            heads.constant
            - 2 * jnp.einsum("ph,ph->p", found.centre, heads.slope)
            + found.square @ heads.traces[own, own]
            + jnp.einsum("ph,ph->p", found.along, heads.form(own, own, own, own))
            + 2 * found.overlap @ heads.traces[first, second]
            + 2 * jnp.einsum("cpk,cpk->p", found.coefficients, forms)
        )


class _WhiteHeads(eqx.Module):
    """The loss as a form in the outputs of heads, in coordinates in which tokens are N(0, I).

    With outputs m_h the loss given the query is `constant` − 2 Σ ℓ_h·m_h + Σ m_hᵀ Q_hk m_k +
    Σ N_hk p_h·p_k.

    **Fields:**

    - `scores`: v_h, at each query.
    - `slope`: ℓ_h·v_h, at each query.
    - `quadratic`: Q_hk.
    - `traces`: tr Q_hk + N_hk.
    """

    scores: Float[Array, "P H D"]
    constant: Float[Array, " P"]
    slope: Float[Array, "P H"]
    quadratic: Float[Array, "H H D D"]
    traces: Float[Array, "H H"]

    @staticmethod
    def of(
        model: Attention,
        root: Float[Array, "D D"],
        labels: LabelMoments,
        queries: Float[Array, "P D"],
    ) -> "_WhiteHeads":
        dim = queries.shape[1]
        u, v = output_circuits(model, labels, dim)
        scores = jnp.einsum("de,hef,pf->phd", root, model.kq()[:, :dim], queries)
        values = jnp.einsum("de,hie->hid", root, u + jnp.einsum("hij,jd->hid", v, labels.mean))
        offset = queries @ labels.mean.T  # the known part of each query label
        spread = jnp.einsum("jde,pe->pjd", labels.covariance, queries)
        constant = jnp.sum(offset**2, 1) + jnp.einsum("pjd,pd->p", spread, queries)
        linear = jnp.einsum("pi,hid->phd", offset, values)
        linear = linear + jnp.einsum("hii,de,pie->phd", v, root, spread)
        shared = jnp.einsum("hij,kij->hkj", v, v)
        prior = jnp.einsum("da,jde,eb->jab", root, labels.covariance, root)
        quadratic = jnp.einsum("hid,kie->hkde", values, values)
        quadratic = quadratic + jnp.einsum("hkj,jde->hkde", shared, prior)
        return _WhiteHeads(
            scores,
            constant + jnp.sum(labels.query_noise),
            jnp.einsum("phd,phd->ph", linear, scores),
            quadratic,
            jnp.trace(quadratic, axis1=-2, axis2=-1) + shared @ labels.noise,
        )

    def form(
        self, left: np.ndarray, right: np.ndarray, first: np.ndarray, second: np.ndarray
    ) -> Float[Array, "P n"]:
        """v_leftᵀ Q_{first,second} v_right, for lists of heads."""
        vectors = self.scores[:, left], self.quadratic[first, second], self.scores[:, right]
        return jnp.einsum("pnd,nde,pne->pn", *vectors)

    def forms(self, first: np.ndarray, second: np.ndarray) -> Float[Array, "4 P n"]:
        """The factors of the four coefficients of a pair."""
        sides = ((first, second), (first, first), (second, first), (second, second))
        return jnp.stack([self.form(*side, first, second) for side in sides])
