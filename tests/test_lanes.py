"""Functions over lanes give what `jax.vmap` gives, whichever operations they are made of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from iclflow.flows._lanes import over_lanes

LANES = 5


def products(shared, x):
    matrix, vector = x["matrix"], x["vector"]
    both = jnp.einsum("ab,bc,c->a", matrix, shared, vector)
    outer = jnp.tensordot(vector, both, 0)
    return {"batched": jnp.einsum("ab,ab->a", matrix, matrix), "outer": outer, "all": both @ both}


def sums(shared, x):
    return [
        jnp.sum(x["matrix"]),
        jnp.sum(x["matrix"], 1),
        jnp.max(x["matrix"], 0),
        jnp.sum(jnp.zeros((0, 3)) * x["scalar"], 0),
        jnp.sum(jnp.tile(x["vector"], 40) ** 2),  # more terms than are written out
        jnp.tile(x["vector"], 40) @ jnp.tile(x["vector"], 40),
    ]


def shapes(shared, x):
    padded = jnp.pad(x["matrix"], ((0, 1), (2, 0)), constant_values=3.0)
    joined = jnp.concatenate([x["vector"], shared[0], x["scalar"][None]])
    return padded.T[1:4:2].reshape(-1), joined, x["matrix"][:, None].squeeze(1), shared + 1


def elementwise(shared, x):
    m = x["matrix"]
    wild = jnp.where(m > 0, jnp.exp(m), jnp.tanh(m) ** 3) / jnp.sqrt(1 + m**2)
    clipped = jnp.clip(m, -x["scalar"], 0.5)
    return wild, clipped, jnp.where(x["scalar"] > 0, m, shared[:, :2]), jnp.isfinite(1 / m)


def others(shared, x):
    """Operations without a rule."""
    order = jnp.argsort(x["vector"])
    place = jnp.argmax(x["vector"])
    return (
        x["vector"][order],
        shared[place],
        jnp.cumsum(x["vector"]),
        jnp.linalg.inv(shared + x["scalar"]),
    )


def branches(shared, x):
    double = lambda v: (2 * v, jnp.ones(()))
    halve = lambda v: (v / 2, v.sum())
    one_by_one = jax.lax.cond(x["scalar"] > 0, double, halve, x["vector"])
    together = jax.lax.cond(shared[0, 0] > 0, double, halve, x["vector"])
    return one_by_one, together


def loops(shared, x):
    halved = jax.lax.while_loop(lambda v: jnp.sum(v**2) > 0.1, lambda v: v / 2, x["vector"])
    summed, parts = jax.lax.scan(lambda s, row: (s + row, s @ row), x["vector"][:2], x["matrix"])
    return halved, summed, parts


def calls(shared, x):
    inner = jax.jit(lambda m: jax.nn.softmax(m @ shared[:2, :2]))
    loss = lambda m: jnp.sum(jax.checkpoint(inner)(m) ** 2) + jax.nn.relu(x["scalar"])
    return jax.value_and_grad(loss)(x["matrix"])


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "function", [products, sums, shapes, elementwise, others, branches, loops, calls]
)
def test_lanes_compute_what_members_do(function):
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(3, 3)) + 3 * np.eye(3)
    if function is products:
        shared = shared[:2]
    members = {
        "matrix": rng.normal(size=(LANES, 3, 2)),
        "vector": rng.normal(size=(LANES, 3)),
        "scalar": rng.normal(size=LANES),
    }
    assert 0 < np.sum(members["scalar"] > 0) < LANES  # members go different ways
    lanes = jax.tree.map(lambda x: np.moveaxis(x, 0, -1), members)
    found = jax.jit(lambda s, x: over_lanes(function, LANES, s, x))(shared, lanes)
    # In one program: operation by operation, each would be compiled by itself.
    expected = jax.jit(jax.vmap(function, in_axes=(None, 0)))(shared, members)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
        ours = np.moveaxis(np.asarray(ours), -1, 0)
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-13, atol=1e-13)
