"""The risk on a fixed, finite set of sequences; for linear attention by sufficient statistics.

A model that is linear in known features φ of a sequence has the empirical loss
(1/P) Σ_p (θ·φ_p − y_p)² = ‖Rθ − r‖², with (R | r) the triangular factor of the P × (F+1) matrix of
features and labels. One pass over the sequences computes it, chunk by chunk. Training on it makes
the same steps as training on the sequences, at a cost that depends on neither P nor N.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..errors import InputError
from ..limits import MAX_FEATURES
from ..models import AbstractModel, attention_length
from ..tasks import Sequences, check_count
from ._base import AbstractRisk
from ._quadratic import FeatureLayout, QuadraticRisk

# Numbers in the largest array of a chunk: 32 MB in float64.
_CHUNK_NUMBERS = 2**22


class StoredSequencesRisk(AbstractRisk):
    """The plain mean of squared errors over stored sequences, for any model. Errors are summed over
    labels.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=3, context=20)
    >>> model = icl.Attention.factored(jr.key(0), dim=3, heads=2)
    >>> sequences = task.sample(jr.key(1), 100)
    >>> risk = icl.risks.StoredSequencesRisk(sequences, chunk=30)
    >>> mean = sequences.squared_error(model.predict(sequences)).mean()
    >>> jnp.allclose(risk(model), mean).item()
    True
    ```
    """

    sequences: Sequences
    chunk: int | None = eqx.field(static=True, default=None)

    kind = "dataset"

    def __check_init__(self):
        if self.chunk is not None:
            check_count("chunk", self.chunk)

    def __call__(self, model: AbstractModel, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        count = self.sequences.count
        if self.chunk is None or self.chunk >= count:
            return jnp.mean(_squared_errors(model, self.sequences))
        chunks = -(-count // self.chunk)
        # All chunks have one shape: the last is filled up with other sequences, of weight zero.
        order = np.arange(chunks * self.chunk).reshape(chunks, self.chunk)
        counted = jnp.asarray(order < count, self.sequences.y_query.dtype)

        # Recomputed on the backward pass, so that one chunk is in memory at a time.
        @jax.checkpoint
        def of_chunk(chunk: tuple[Array, Array]) -> Array:
            index, weight = chunk
            return jnp.sum(weight * _squared_errors(model, self.sequences[index]))

        return jnp.sum(jax.lax.map(of_chunk, (jnp.asarray(order % count), counted))) / count


def dataset_risk(
    sequences: Sequences, model: AbstractModel, chunk: int | None = None
) -> QuadraticRisk | StoredSequencesRisk:
    """The mean squared error over `sequences`, for every model of the layout of `model`.

    Linear attention and its equivalent networks get sufficient statistics, as long as these
    are no larger than 4096 features; every other model the plain mean.

    **Arguments:**

    - `sequences`: with one batch axis; contexts may differ in length.
    - `model`: only its form and sizes are read.
    - `chunk`: how many sequences to hold at a time. By default the statistics are made in
      chunks of about 32 MB, and the plain mean in one.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=3, context=20)
    >>> model = icl.Attention.merged(jr.key(0), dim=3, heads=2)
    >>> risk = icl.risks.dataset_risk(task.sample(jr.key(1), 1000), model)
    >>> type(risk).__name__, risk.kind
    ('QuadraticRisk', 'dataset')
    ```
    """
    if chunk is not None:
        check_count("chunk", chunk)
    if sequences.x.ndim != 3 or sequences.count < 1:
        raise InputError(
            "sequences",
            problem=f"has inputs of shape {sequences.x.shape}",
            allowed="must be (count, context, dim) with at least one sequence",
        )
    if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(sequences)):
        raise InputError(
            "sequences", problem="holds NaN or infinity", allowed="every entry must be finite"
        )
    if model.form == "general":
        return StoredSequencesRisk(sequences, chunk)
    layout = FeatureLayout.of(model)
    if sequences.dim != layout.dim:
        raise ValueError(f"`sequences` has `dim` = {sequences.dim}, `model` has {layout.dim}.")
    if layout.size > MAX_FEATURES:
        return StoredSequencesRisk(sequences, chunk)
    return QuadraticRisk.from_factor(_factor(sequences, layout, chunk), layout, "dataset")


def _factor(sequences: Sequences, layout: FeatureLayout, chunk: int | None) -> np.ndarray:
    """The triangular factor of the matrix of features and labels, divided by √P."""
    columns, count = layout.size + 1, sequences.count
    widest = max(columns, sequences.x.shape[1] * (layout.dim + 1))
    # Chunks as long as the factor, or longer, waste little on factorising the factor again.
    chunk = chunk or max(_CHUNK_NUMBERS // widest, columns)
    triangle = np.zeros((columns, columns))
    stored = jax.tree.map(np.asarray, sequences)
    for start in range(0, count, chunk):
        part = jax.tree.map(
            lambda leaf: np.asarray(leaf, np.float64), stored[start : start + chunk]
        )
        rows = np.column_stack([_features(part, layout), part.y_query])
        # QR of the factor so far with the next rows: a Gram matrix would lose half of all digits.
        rows = np.concatenate([triangle, rows / np.sqrt(count)])
        triangle = np.asarray(np.linalg.qr(rows, mode="r"))
    return triangle


def _features(part: Sequences, layout: FeatureLayout) -> np.ndarray:
    """φ = G_ab x_q,c in packed order: (count, F)."""
    if layout.form == "bilinear":
        pairs = np.matmul(part.y.transpose(0, 2, 1), part.x)[:, 0]
    else:
        tokens = np.concatenate([part.x, part.y], -1)
        gram = np.matmul(tokens.transpose(0, 2, 1), tokens)
        if layout.self_attention:
            query = part.x_query
            gram[:, :-1, :-1] += query[:, :, None] * query[:, None, :]
        first, second = layout.pairs()
        pairs = gram[:, first, second]
    pairs = pairs / attention_length(part.length, layout.normaliser)[:, None]  # pyright: ignore
    return (pairs[:, :, None] * part.x_query[:, None, :]).reshape(len(pairs), -1)


def _squared_errors(model: AbstractModel, sequences: Sequences) -> Array:
    return sequences.squared_error(model.predict(sequences))
