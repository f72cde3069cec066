"""The transformers of the room on task diversity: the model, its training, its measures."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.special

from iclflow.estimators import DiscreteMMSE, Ridge
from iclflow.papers import FIGURES, Lab, run_claim, select_claims
from iclflow.papers.diversity import runs_transformer as runs
from iclflow.papers.diversity.transformer import Transformer, operations
from iclflow.tasks import FiniteTasks
from iclflow.theory import diversity


def drawn_model(dim=3, pairs=4, width=8, heads=2, depth=2) -> Transformer:
    """Weights all of which matter: none is at its start of zero or one."""
    model = Transformer.init(jr.key(0), dim, pairs, width, heads, depth)
    leaves, structure = jax.tree.flatten(model)
    rng = np.random.default_rng(1)
    moved = [leaf + 0.3 * rng.standard_normal(leaf.shape).astype("f4") for leaf in leaves]
    return jax.tree.unflatten(structure, moved)


def normalised(z, norm):
    away = z - z.mean(-1, keepdims=True)
    return away / np.sqrt((away**2).mean(-1, keepdims=True) + 1e-5) * norm[0] + norm[1]


def predict_in_numpy(model, x, y) -> np.ndarray:
    """One sequence, token by token and head by head, in double precision."""
    m = jax.tree.map(lambda leaf: np.asarray(leaf, float), model)
    tokens = []
    for inputs, label in zip(x, y):
        tokens += [np.append(0.0, inputs), np.append(label, np.zeros(len(inputs)))]
    z = np.array([t @ m.embed + p for t, p in zip(tokens, m.positions)])
    w = m.layers
    for layer in range(len(w.out)):
        seen, size = normalised(z, w.norm[layer, 0]), z.shape[1] // m.heads
        q, k, v = (seen @ w.qkv[layer, :, part] for part in range(3))
        mixed = np.zeros_like(z)
        for head in range(m.heads):
            own = slice(head * size, (head + 1) * size)
            for t in range(len(z)):
                scores = k[: t + 1, own] @ q[t, own] / np.sqrt(size)
                shares = np.exp(scores - scores.max())
                mixed[t, own] = shares / shares.sum() @ v[: t + 1, own]
        z = z + mixed @ w.out[layer]
        wide = normalised(z, w.norm[layer, 1]) @ w.up[layer] + w.up_shift[layer]
        # GELU as GPT-2 has it.
        bent = 0.5 * wide * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))
        z = z + bent @ w.down[layer] + w.down_shift[layer]
    return normalised(z[::2], m.last_norm) @ m.read


def test_the_model_is_that_of_numpy():
    model, rng = drawn_model(), np.random.default_rng(0)
    x, y = rng.standard_normal((5, 4, 3)).astype("f4"), rng.standard_normal((5, 4)).astype("f4")
    found = model.predict(jnp.asarray(x), jnp.asarray(y))
    expected = [predict_in_numpy(model, *each) for each in zip(x, y)]
    # Single precision: some hundred roundings of 6e-8, on predictions of size 1 to 3.
    np.testing.assert_allclose(found, expected, atol=2e-5)
    # GELU by the error function is another one: the comparison would see it.
    assert abs(scipy.special.ndtr(1.0) - 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * 1.044715))) > 1e-4


def test_a_prediction_sees_the_pairs_before_it_alone():
    model, rng = drawn_model(), np.random.default_rng(0)
    x, y = (jnp.asarray(rng.standard_normal(s).astype("f4")) for s in ((2, 4, 3), (2, 4)))
    found = model.predict(x, y)
    for place in range(4):
        other = model.predict(x.at[:, place + 1 :].add(1.0), y.at[:, place:].add(1.0))
        np.testing.assert_array_equal(found[:, : place + 1], other[:, : place + 1])
        assert place == 3 or np.all(found[:, place + 1 :] != other[:, place + 1 :])


def test_operations_are_those_that_the_compiler_counts():
    # The compiler counts the body of a loop over layers once: there is one.
    dim, pairs, width, depth, batch = 8, 16, 64, 1, 4
    model = Transformer.init(jr.key(0), dim, pairs, width, 4, depth)
    loss = lambda model, x, y: jnp.mean((model.predict(x, y) - y) ** 2)
    x, y = jnp.ones((batch, pairs, dim), "f4"), jnp.ones((batch, pairs), "f4")
    counted = jax.jit(jax.grad(loss)).lower(model, x, y).compile().cost_analysis()
    # Norms, softmax and GELU come on top.
    assert counted is not None
    assert 1 < counted["flops"] / (batch * operations(dim, pairs, width, depth)) < 1.3


CLAIMS = [f"diversity/transformer-{name}" for name in ("threshold", "unseen", "gap")]
TINY = runs.Setting(2, 4, 0.25, (1, 64), 2, 8, 2, 2, 8, 20, 1e-3, 64)


@pytest.fixture(scope="module")
def trained() -> runs.Trained:
    return runs.train(TINY)


@pytest.mark.slow
def test_measures_are_those_of_the_definitions(trained):
    """The models at the end, one by one: distances and losses from sequences drawn anew."""
    fresh = runs.law(TINY)
    for k, count in enumerate(TINY.tasks):
        for seed in range(TINY.seeds):
            model = jax.tree.map(lambda leaf: jnp.asarray(leaf[seed, k]), trained.weights)
            own = FiniteTasks(trained.tasks[seed, :count], fresh)
            for name, task in (("idg", own), ("icl", fresh)):
                drawn = task.sample(jr.key(7), 4000)
                x = jnp.concatenate([drawn.x, drawn.x_query[:, None]], 1).astype("float32")
                y = jnp.concatenate([drawn.y[..., 0], drawn.y_query], 1).astype("float32")
                guess = np.asarray(model.predict(x, y), float)[:, -1]
                squares = (guess - np.asarray(drawn.y_query)[:, 0]) ** 2
                close(getattr(trained, name)[k, seed, -1], squares)
                for rival, predictor in (
                    ("dmmse", DiscreteMMSE(own.vectors, TINY.noise)), ("ridge", Ridge(TINY.noise)),
                ):  # fmt: skip
                    off = guess - np.asarray(predictor.predict(drawn))[:, 0]
                    found = getattr(trained, f"{rival}_{name}")[k, seed, -1]
                    close(found, off**2 / TINY.dim)


def close(found, squares) -> None:
    """Within five standard errors of both samples: 64 sequences against 4000, heavy tails."""
    error = squares.std() * (1 / TINY.tests + 1 / len(squares)) ** 0.5
    assert abs(found - squares.mean()) < 5 * error + 1e-6


@pytest.mark.slow
def test_training_moves_every_model_on_its_own_tasks(trained):
    assert trained.losses.shape == (2, 2, len(TINY.saved) - 1)
    # At the start predictions are zero: for one task dMMSE is at the distance (w·x)², drawn 64
    # times, whose mean has a standard error of 18 %.
    power = np.sum(trained.tasks[:, 0] ** 2, 1) / TINY.dim
    np.testing.assert_allclose(trained.dmmse_idg[0, :, 0], power, rtol=0.7)
    # Every weight of every model has moved apart from that of the other K.
    for leaf in jax.tree.leaves(trained.weights):
        assert np.all(np.max(np.abs(leaf[:, 0] - leaf[:, 1]), tuple(range(1, leaf.ndim - 1))) > 0)
    same = runs.train(TINY)
    np.testing.assert_array_equal(same.losses, trained.losses)


def table(shares, gaps=None) -> runs.Trained:
    """Runs with these shares of the way to ridge regression, one row for each K."""
    share = np.array(shares, float)[..., None]
    fields = {name: np.zeros((*share.shape[:2], 1)) for name in runs.Trained._fields}
    fields |= {"dmmse_icl": share, "ridge_icl": 1 - share}
    return runs.Trained(**fields)  # pyright: ignore[reportArgumentType]


def test_the_threshold_is_where_the_share_passes_one_half_for_good():
    at = TINY._replace(tasks=(16, 64, 256, 1024), seeds=3)
    found = runs.threshold(at, table([[0.1] * 3, [0.2, 0.6, 0.4], [0.8, 0.4, 0.6], [0.9] * 3]))
    np.testing.assert_allclose(found.each, [7.0, 8.4, 7.0])
    mean, half = np.mean(found.each), 4.302653 * np.std(found.each, ddof=1) / 3**0.5
    np.testing.assert_allclose(
        [found.mean, found.low, found.high], [mean, mean - half, mean + half]
    )
    # One seed that never changes sides: no interval.
    found = runs.threshold(at, table([[0.1] * 3, [0.2] * 3, [0.4, 0.6, 0.6], [0.4, 0.9, 0.9]]))
    assert np.isnan(found.each[0]) and np.isnan(found.low) and np.isfinite(found.each[1:]).all()


def test_half_of_a_gap_is_read_between_two_numbers_of_tasks():
    at = TINY._replace(tasks=(4, 16, 64), seeds=2)
    found = runs.half_gone(at, np.array([[4.0, 4.0], [3.0, 3.9], [1.0, 3.8]]))
    np.testing.assert_allclose(found, [5.0, np.nan])


def test_one_layer_is_the_exact_optimum_on_the_same_tasks():
    at = TINY._replace(tasks=(1, 3), seeds=2)
    rows = np.random.default_rng(0).standard_normal((2, 3, 2))
    found = runs.one_layer(at, table([[0.0] * 2] * 2)._replace(tasks=rows))
    task = diversity.with_tasks(runs.law(at), rows[1, :3])
    gap = diversity.task_gap(task, runs.law(at), diversity.components(task).matrix())
    np.testing.assert_allclose(found.icl[1, 1] - found.idg[1, 1], gap, atol=1e-12)


@pytest.mark.slow
def test_claims_and_figure_on_untrained_transformers(trained):
    """A tiny training decides nothing: claims say so, and under falsification fail."""
    lab = Lab("smoke")
    lab.assume(trained, runs.trained)
    for claim in select_claims(CLAIMS):
        assert claim.tier == "paper" and run_claim(claim, lab).verdict == "fails"
    drawing = FIGURES["diversity/transformer"].draw(lab)
    assert drawing.data["icl"].shape == (2, 2, len(TINY.saved))


@pytest.mark.slow
def test_claims_hold_on_runs_that_do_what_the_papers_say():
    """Numbers as the sources describe them pass; the same against wrong predictions fail."""
    at, rng = runs.setting(Lab("paper")), np.random.default_rng(0)
    tasks = rng.standard_normal((at.seeds, max(at.tasks), at.dim))
    k, one = np.arange(len(at.tasks)), np.ones((1, at.seeds, 1))
    share = (1 / (1 + np.exp(-(k - 2.7) * 2)))[:, None, None] * one
    gap = np.array([7.6, 6.0, 4.8, 2.0, 0.5, 0.2, 0.1])[:, None, None] * one
    seen = np.array([0.25, 0.3, 0.4, 0.5, 0.55, 0.55, 0.55])[:, None, None] * one
    bayes = {"dmmse_idg_loss": 0.249, "dmmse_icl_loss": 3.0, "ridge_idg_loss": 0.549}
    found = runs.Trained(
        times=np.array([0]), losses=0 * share, idg=seen, icl=seen + gap,
        dmmse_idg=share, ridge_idg=share, dmmse_icl=share + 0.01 * rng.random(share.shape),
        ridge_icl=1 - share, **{n: v * np.ones(share.shape[:2]) for n, v in bayes.items()},
        ridge_icl_loss=0.549 * np.ones(at.seeds), tasks=tasks,
        weights=Transformer.init(jr.key(0), 1, 1, 2, 1, 1),
    )  # fmt: skip
    for falsify, verdict in ((False, "holds"), (True, "fails")):
        lab = Lab("paper", falsify)
        lab.assume(found, runs.trained)
        for claim in select_claims(CLAIMS):
            outcome = run_claim(claim, lab)
            assert outcome.verdict == verdict, (claim.id, outcome.reason)
