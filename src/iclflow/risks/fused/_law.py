"""The law of sequences in coordinates where inputs are white, and circuits in these coordinates."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, UInt32

from ...models import Attention
from ...tasks import AbstractRegression
from .._batch import AbstractBatchRisk, as_dtype
from .._draws import Inputs, LabelMoments, Root
from .._lane_batches import ContextBatchRisk, LaneBatchRisk
from .._lanes import Lanes
from ._pass import Numbers, length_of
from ._philox import LENGTHS, four_normals, philox, uniform
from ._spec import EngineName, Spec


class WhiteLaw(eqx.Module):
    """x = F z with z white: labels then depend on F times a task vector.

    **Fields:**

    - `inputs`: F, and the lengths of contexts.
    - `mean`, `covariance`: of white task vectors, one row per label; a diagonal covariance is a
      vector.
    - `root`: R with R Rᵀ that covariance.
    - `moments`: of labels, in the coordinates of the task.
    - `bits`: the version of the pass. It changes when the same numbers are summed in another order,
      so that runs of before, which would end with other bits, are not resumed.
    """

    inputs: Inputs
    moments: LabelMoments
    mean: Float[Array, "J D"]
    covariance: Float[Array, "J D"] | Float[Array, "J D D"]
    root: Float[Array, "J D"] | Float[Array, "J D D"]
    bits: int = eqx.field(static=True, default=2)

    @staticmethod
    def of(task: AbstractRegression) -> "WhiteLaw":
        inputs, labels = Inputs.of(task), LabelMoments.of(task)
        factor = inputs.root.matrix
        covariance = jnp.einsum("de,jef,fg->jdg", factor, labels.covariance, factor)
        # A diagonal covariance saves a product with a matrix per sequence, if all labels have one.
        roots = [Root.of(each) for each in covariance]
        if all(root.factor.ndim == 1 for root in roots):
            root, covariance = (
                jnp.stack([root.factor for root in roots]),
                jax.vmap(jnp.diag)(covariance),
            )
        else:
            root = jnp.stack([root.matrix for root in roots])
        return WhiteLaw(
            inputs=inputs,
            moments=labels,
            mean=labels.mean @ factor,
            covariance=covariance,
            root=root,
        )

    @property
    def labels(self) -> int:
        return self.mean.shape[0]

    def fits(self, model: Attention) -> bool:
        """Whether `model` has as many inputs and labels."""
        return (model.dim, model.labels) == (self.inputs.dim, self.labels)

    def spec(self, model: Attention, drawn: bool, batch: int, engine: EngineName = "auto") -> Spec:
        """The static description of a pass of `model` over `batch` sequences."""
        return Spec(
            dim=self.inputs.dim,
            heads=model.heads,
            labels=self.labels,
            drawn=drawn,
            reads_inputs=not model.blind,
            diagonal=self.covariance.ndim == 2,
            contexts=self.inputs.contexts,
            batch=batch,
            engine=engine,
        )

    def circuits(
        self, model: Attention, drawn: bool
    ) -> tuple[Float[Array, "H A D"], Float[Array, "H J T"]]:
        """The key-query circuit of white tokens and the output-value circuit, in float32."""
        return self.whiten(model.kq(), model.ov(), drawn)

    def whiten(
        self, kq: Float[Array, "H T D"], ov: Float[Array, "H J T"], drawn: bool
    ) -> tuple[Float[Array, "H A D"], Float[Array, "H J T"]]:
        """Circuits of tokens as circuits of white ones: a linear map."""
        dim, times = self.inputs.dim, self.inputs.root.times
        columns = lambda rows: jnp.swapaxes(times(jnp.swapaxes(rows, 1, 2)), 1, 2)
        of_inputs, of_labels = times(columns(kq[:, :dim])), columns(kq[:, dim:])
        u, v = columns(ov[..., :dim]), ov[..., dim:]
        turn = self.moments.rotation
        if turn is not None:
            of_labels = jnp.einsum("ji,hjd->hid", turn, of_labels)
            u = jnp.einsum("ki,hkd->hid", turn, u)
            v = jnp.einsum("ki,hkl,lj->hij", turn, v, turn)
        kq = jnp.concatenate([of_inputs, of_labels], 1) if drawn else of_inputs
        return kq.astype(jnp.float32), jnp.concatenate([u, v], 2).astype(jnp.float32)

    def batch(self, words: UInt32[Array, "2"], count: int, drawn: bool) -> AbstractBatchRisk:
        """The sequences of a pass, stored: made of the same random numbers, in the same places."""
        inputs, dim, labels = self.inputs, self.inputs.dim, self.labels
        spec = Spec(dim, 0, labels, drawn, True, True, inputs.contexts, count)
        lane = jnp.arange(count, dtype=jnp.uint32)
        blocks = spec.header_blocks + spec.groups * spec.group_blocks
        place = jnp.arange(blocks, dtype=jnp.uint32)[:, None]
        rows = jnp.stack(four_normals(philox((words[0], words[1]), lane, place)), 1)
        rows = rows.reshape(4 * blocks, count)
        header, rest = rows[: 4 * spec.header_blocks], rows[4 * spec.header_blocks :]
        tokens = rest[: spec.longest * spec.slot].reshape(spec.longest, spec.slot, count)
        length, keep = jnp.full(count, spec.longest, jnp.float32), None
        if len(inputs.contexts) > 1:
            share = uniform(philox((words[0], words[1]), lane, jnp.zeros_like(lane), LENGTHS)[0])
            length = length_of(spec, share, self._cumulative.astype(jnp.float32))
            keep = jnp.arange(spec.longest)[:, None] < length
            length = length.astype(jnp.float32)
        query, white = header[:dim], tokens[:, :dim]
        x, x_query = inputs.root.times(white), inputs.root.times(query)
        x = x if keep is None else jnp.where(keep[:, None], x, 0.0)
        lanes = Lanes(x, x_query, length, keep)
        if not drawn:
            return ContextBatchRisk(lanes, as_dtype(self.moments, jnp.float32))
        law = as_dtype(self, jnp.float32)
        root = law.root if law.root.ndim == 3 else jax.vmap(jnp.diag)(law.root)
        w = header[dim : dim * (labels + 1)].reshape(labels, dim, count)
        w = jnp.einsum("jde,jep->jdp", root, w, precision="highest") + law.mean[..., None]
        noise = tokens[:, dim : dim + labels] * jnp.sqrt(law.moments.noise)[:, None]
        y = jnp.einsum("ndp,jdp->njp", white, w, precision="highest") + noise
        ends = header[dim * (labels + 1) :][:labels] * jnp.sqrt(law.moments.query_noise)[:, None]
        y_query = jnp.einsum("dp,jdp->jp", query, w, precision="highest") + ends
        turn = law.moments.rotation
        if turn is not None:
            y = jnp.einsum("ij,njp->nip", turn, y, precision="highest")
            y_query = jnp.matmul(turn, y_query, precision="highest")
        y = y if keep is None else jnp.where(keep[:, None], y, 0.0)
        lanes = Lanes(jnp.concatenate([x, y], 1), x_query, length, keep)
        return LaneBatchRisk(lanes, y_query, None)

    def numbers(self, words: UInt32[Array, "2"], kq: Array, ov: Array, drawn: bool) -> Numbers:
        """The arrays of a pass. Where labels are drawn, these are roots of variances."""
        noise, prior = self.moments.noise, self.covariance
        if drawn:
            noise, prior = jnp.sqrt(noise), self.root
        rest = self.mean, prior, noise, jnp.sqrt(self.moments.query_noise), self._cumulative
        return Numbers(words, kq, ov, *(part.astype(jnp.float32) for part in rest))

    @property
    def _cumulative(self) -> Float[Array, " K"]:
        return jnp.cumsum(self.inputs.probabilities)


def words_of(key: PRNGKeyArray) -> UInt32[Array, "2"]:
    """The key of the Philox generator, from a JAX key."""
    return jr.bits(key, (2,), jnp.uint32)
