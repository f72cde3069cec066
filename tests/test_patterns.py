"""What the heads of a model do: roles, patterns of the circuits, tasks in superposition."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from iclflow.analysis import circuits, head_roles, patterns, superposition
from iclflow.models import Attention, AttentionStack, Diagonal, Merged, TwoLayerLinear
from iclflow.tasks import LinearRegression, MultiTaskRegression


def pair(omega=(0.13, -0.13), mu=(3.45, -3.45)):
    return Attention(Diagonal(jnp.asarray(omega), jnp.asarray(mu), 5))


def test_an_exact_pair_has_every_pattern():
    found = patterns(pair())
    assert found.roles == ("positive", "negative")
    assert found.diagonal_share == found.last_entry_share == 1
    assert found.zero_sum == found.pair_balance == found.magnitude_spread == 0
    assert found.step_size == pytest.approx(2 * 0.13 * 3.45)
    assert all(head.homogeneity == 1 for head in found.heads)


@pytest.mark.parametrize(
    ("omega", "mu", "roles"),
    [
        ((0.2, -0.2, 0.0), (1.0, -1.0, 5.0), ("positive", "negative", "dummy")),
        ((0.2, -0.2, 0.2), (1.0, -1.0, 0.01), ("positive", "negative", "dummy")),
        ((0.2, -0.2, 0.2), (1.0, -1.0, -0.5), ("positive", "negative", "opposing")),
        ((0.5,), (1.5,), ("positive",)),
        ((0.0, 0.0), (0.0, 0.0), ("dummy", "dummy")),
    ],
)
def test_roles_follow_the_signs_and_the_share_of_the_step(omega, mu, roles):
    assert head_roles(np.asarray(omega), np.asarray(mu)) == roles


def test_stray_entries_lower_the_shares_by_what_they_weigh():
    value = jnp.zeros((1, 4)).at[0].set(jnp.asarray([0.0, 3.0, 0.0, 4.0]))
    block = jnp.zeros((1, 4, 3)).at[0, :3].set(jnp.diag(jnp.asarray([2.0, 2.0, 2.0])))
    block = block.at[0, 3, 0].set(4.0)
    found = patterns(Attention(Merged(value[:, None], block), activation="softmax"))
    assert found.heads[0].last_entry_share == pytest.approx(4 / 5)
    assert found.heads[0].diagonal_share == pytest.approx(np.sqrt(12 / 28))
    assert found.heads[0].omega == pytest.approx(2) and found.heads[0].homogeneity == 1


def test_diagonal_is_meant_in_the_basis_that_is_given():
    basis, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))
    turned = basis @ np.diag([1.0, 2.0, 3.0, 4.0, 5.0]) @ basis.T
    block = jnp.pad(jnp.asarray(turned)[None], ((0, 0), (0, 1), (0, 0)))
    model = Attention(
        Merged(jnp.asarray([[0.0] * 5 + [1.0]])[:, None], block), activation="softmax"
    )
    assert patterns(model).diagonal_share < 0.99
    found = patterns(model, basis=basis)
    assert found.diagonal_share == pytest.approx(1, abs=1e-12)
    assert found.heads[0].omega == pytest.approx(3)
    assert found.heads[0].homogeneity == pytest.approx(1 - np.sqrt(2) / 3)


def test_a_model_without_circuits_is_refused():
    layers = TwoLayerLinear.from_attention(Attention.merged(jr.key(0), 3, 2))
    with pytest.raises(TypeError, match="must be one layer of attention"):
        patterns(layers)
    with pytest.raises(TypeError, match="no circuits"):
        superposition(layers, two_tasks())
    with pytest.raises(TypeError, match="matrices of its own in each of its layers"):
        patterns(AttentionStack.init(jr.key(0), 3, 2, 2))


def test_a_model_and_a_task_of_different_sizes_are_refused():
    with pytest.raises(ValueError, match="predicts 1 label: must predict the 2"):
        superposition(Attention(Diagonal(jnp.ones(2), jnp.ones(2), 6)), two_tasks())
    with pytest.raises(ValueError, match="inputs of dimension 5: the task has 6"):
        patterns(pair(), task=two_tasks())
    with pytest.raises(ValueError, match="`label` = 1: must lie between 0 and 0"):
        patterns(pair(), label=1)


def test_heads_that_one_number_does_not_describe_are_told():
    assert all(head.structured for head in patterns(pair()).heads)
    wild = jr.normal(jr.key(0), (1, 9, 8))
    (head,) = patterns(Attention(Merged(jnp.ones((1, 9))[:, None], wild))).heads
    assert head.diagonal_share < 0.5 and not head.structured
    torn = Attention(Diagonal(jnp.asarray([[1.0, -1.0, 1.0, -1.0, 1.0]]), jnp.ones(1), 5))
    (head,) = patterns(torn).heads
    assert head.diagonal_share == 1 and head.homogeneity == 0 and not head.structured


def test_the_basis_of_a_covariance_that_is_not_diagonal_is_found():
    turn, _ = np.linalg.qr(np.random.default_rng(2).normal(size=(3, 3)))
    values = np.diag([1.0, 2.0, 3.0])
    task = LinearRegression(covariance=turn @ values @ turn.T, context=9)
    block = jnp.pad(jnp.asarray(turn @ values @ turn.T)[None], ((0, 0), (0, 1), (0, 0)))
    model = Attention(
        Merged(jnp.asarray([[0.0, 0.0, 0.0, 1.0]])[:, None], block), activation="softmax"
    )
    assert patterns(model, task=task).diagonal_share == pytest.approx(1, abs=1e-12)
    assert circuits(model).attention == pytest.approx(np.asarray(block))


def two_tasks(**options):
    return MultiTaskRegression([[0, 1, 2], [3, 4, 5]], context=20, noise=0.1, **options)


def test_heads_that_serve_one_task_are_told_from_those_that_serve_both():
    omega = jnp.asarray([[1.0] * 3 + [0.0] * 3, [0.0] * 3 + [1.0] * 3, [1.0] * 6, [1e-3] * 6])
    mu = jnp.asarray([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0], [0.01, 0.0]])
    found = superposition(Attention(Diagonal(omega, mu, 6)), two_tasks())
    assert found.owners == (0, 1, 0, -1) and found.superposed == 1
    assert found.tasks_per_head[:3] == pytest.approx([1, 1, 2])
    assert found.shares[2] == pytest.approx([0.5, 0.5])


def test_attention_to_a_label_is_the_mean_over_the_inputs_that_it_depends_on():
    task = MultiTaskRegression([[0, 1, 2, 3], [2, 3, 4, 5]], context=20, noise=0.1)
    omega = jnp.asarray([[0.9] * 4 + [0.0] * 2, [-1.0, -1.0, 1.0, 1.0, 1.0, 1.0]])
    model = Attention(Diagonal(omega, jnp.ones((2, 2)), 6))
    first, second = (patterns(model, label, task=task) for label in (0, 1))
    assert [head.omega for head in first.heads] == pytest.approx([0.9, 0.0])
    assert [head.omega for head in second.heads] == pytest.approx([0.45, 1.0])
    assert first.heads[0].homogeneity == pytest.approx(1) and first.roles == ("positive", "dummy")
    assert second.heads[1].homogeneity == pytest.approx(1)
    assert first.step_size == pytest.approx(0.9)
    # Nothing but the task says which inputs these are.
    assert patterns(model, 0).heads[0].omega == pytest.approx(0.6)


def test_a_label_that_no_head_serves_has_dummies_alone():
    omega = jnp.asarray([[0.3] * 3 + [1e-3] * 3, [-0.3] * 3 + [-1e-3] * 3])
    mu = jnp.asarray([[2.0, 1.0], [-2.0, -1.0]])
    model = Attention(Diagonal(omega, mu, 6))
    assert patterns(model, 0, task=two_tasks()).roles == ("positive", "negative")
    assert patterns(model, 1, task=two_tasks()).roles == ("dummy", "dummy")


def test_rotations_of_the_task_are_undone():
    generator = np.random.default_rng(1)
    turn, _ = np.linalg.qr(generator.normal(size=(6, 6)))
    mix, _ = np.linalg.qr(generator.normal(size=(2, 2)))
    signs = np.asarray([1.0, -1.0])[:, None, None]
    block = signs * (turn @ np.diag([0.3] * 3 + [0.0] * 3) @ turn.T)
    value = np.zeros((2, 2, 8))
    value[:, :, 6:] = signs * (mix @ np.diag([2.0, 0.0]) @ mix.T)
    attention = jnp.asarray(np.pad(block, ((0, 0), (0, 2), (0, 0))))
    model = Attention(
        Merged(jnp.asarray(value), attention), activation="softmax", self_attention=False
    )
    task = two_tasks(input_rotation=turn, output_rotation=mix)
    found = superposition(model, task)
    assert found.strength == pytest.approx(np.asarray([[0.6, 0.0]] * 2), abs=1e-12)
    first, second = (patterns(model, label, task=task) for label in (0, 1))
    assert first.roles == ("positive", "negative") and second.roles == ("dummy", "dummy")
    assert first.diagonal_share == pytest.approx(1) == first.last_entry_share
    assert [head.omega for head in first.heads] == pytest.approx([0.3, -0.3])
    assert first.step_size == pytest.approx(1.2) and abs(second.step_size) < 1e-12
