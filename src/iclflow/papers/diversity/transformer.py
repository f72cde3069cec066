"""A small causal transformer for in-context regression, with layer norm and an MLP in every layer
(arXiv 2306.15063: that of GPT-2, smaller)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

# Added to variances before their root is taken, as everywhere.
_TINY = 1e-5
# The hidden width of an MLP over that of the stream.
_WIDER = 4


class Layers(eqx.Module):
    """The weights of all layers, one after the other along the first axis."""

    norm: Float[Array, "L two two W"]  # before attention and MLP: scale and shift
    qkv: Float[Array, "L W three W"]
    out: Float[Array, "L W W"]
    up: Float[Array, "L W hidden"]
    up_shift: Float[Array, "L hidden"]
    down: Float[Array, "L hidden W"]
    down_shift: Float[Array, "L W"]


class Transformer(eqx.Module):
    """Tokens x₁, y₁, …, x_N, y_N, of which every one sees itself and those before; the prediction
    of yₙ is read off xₙ.

    An input is (0, x) and a label (y, 0). Layers are Z ← Z + attention(norm Z), then
    Z ← Z + MLP(norm Z), with softmax over keys and GELU.
    """

    embed: Float[Array, "token W"]
    positions: Float[Array, "length W"]
    layers: Layers
    last_norm: Float[Array, "two W"]
    read: Float[Array, " W"]
    heads: int = eqx.field(static=True)

    @staticmethod
    def init(
        key: PRNGKeyArray, dim: int, pairs: int, width: int, heads: int, depth: int
    ) -> "Transformer":
        """Gaussian weights in single precision. What layers add to the stream starts smaller, so
        that its size does not depend on their number; the first prediction is zero."""
        keys = jr.split(key, 6)

        def normal(key: PRNGKeyArray, *shape: int, size: float) -> Array:
            return size * jr.normal(key, shape, jnp.float32)

        unit, hidden = width**-0.5, _WIDER * width
        added = (2 * depth) ** -0.5
        norm = jnp.stack([jnp.ones(width, jnp.float32), jnp.zeros(width, jnp.float32)])
        layers = Layers(
            norm=jnp.broadcast_to(norm, (depth, 2, 2, width)),
            qkv=normal(keys[0], depth, width, 3, width, size=unit),
            out=normal(keys[1], depth, width, width, size=unit * added),
            up=normal(keys[2], depth, width, hidden, size=unit),
            up_shift=jnp.zeros((depth, hidden), jnp.float32),
            down=normal(keys[3], depth, hidden, width, size=hidden**-0.5 * added),
            down_shift=jnp.zeros((depth, width), jnp.float32),
        )
        return Transformer(
            embed=normal(keys[4], dim + 1, width, size=(dim + 1) ** -0.5),
            positions=normal(keys[5], 2 * pairs, width, size=0.1),
            layers=layers,
            last_norm=norm,
            read=jnp.zeros(width, jnp.float32),
            heads=heads,
        )

    def predict(self, x: Float[Array, "B N D"], y: Float[Array, "B N"]) -> Float[Array, "B N"]:
        """The prediction of each label from the pairs before it; that of yₙ does not see yₙ."""
        batch, pairs, dim = x.shape
        inputs = jnp.concatenate([jnp.zeros_like(y)[..., None], x], -1)
        labels = jnp.pad(y[..., None], ((0, 0), (0, 0), (0, dim)))
        tokens = jnp.stack([inputs, labels], 2).reshape(batch, 2 * pairs, dim + 1)
        stream = tokens @ self.embed + self.positions[: 2 * pairs]

        def layer(stream: Array, weights: Layers) -> tuple[Array, None]:
            stream = stream + self._attend(weights, _normalise(stream, weights.norm[0]))
            wide = _normalise(stream, weights.norm[1]) @ weights.up + weights.up_shift
            return stream + jax.nn.gelu(wide) @ weights.down + weights.down_shift, None

        stream, _ = jax.lax.scan(layer, stream, self.layers)
        return _normalise(stream[:, ::2], self.last_norm) @ self.read

    def _attend(self, weights: Layers, stream: Float[Array, "B T W"]) -> Float[Array, "B T W"]:
        batch, length, width = stream.shape
        parts = jnp.einsum("btw,wcv->cbtv", stream, weights.qkv)
        query, key, value = parts.reshape(3, batch, length, self.heads, width // self.heads)
        scores = jnp.einsum("bqhv,bkhv->bhqk", query, key) / (width // self.heads) ** 0.5
        seen = jnp.tril(jnp.ones((length, length), bool))
        shares = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), -1)
        mixed = jnp.einsum("bhqk,bkhv->bqhv", shares, value).reshape(batch, length, width)
        return mixed @ weights.out


def operations(dim: int, pairs: int, width: int, depth: int) -> float:
    """Floating-point operations of a step of training on one sequence: products of matrices alone,
    forward once and backward twice."""
    tokens = 2 * pairs
    weights = depth * width**2 * (4 + 2 * _WIDER) + (dim + 1) * width
    attention = 2 * depth * tokens * width
    return 6.0 * tokens * (weights + attention)


def _normalise(stream: Float[Array, "... W"], norm: Float[Array, "two W"]) -> Array:
    """Layer norm: mean 0 and variance 1 over the width, then scale and shift."""
    away = stream - jnp.mean(stream, -1, keepdims=True)
    return away * jax.lax.rsqrt(jnp.mean(away**2, -1, keepdims=True) + _TINY) * norm[0] + norm[1]
