"""Callbacks of training libraries, and functions of JAX, watched."""

import sys
import types

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import iclflow as icl
from iclflow.errors import InputError


@pytest.fixture(scope="module")
def task():
    return icl.LinearRegression(eigenvalues=[1.0, 0.5], context=8, noise=0.1)


def draw(rng, count=32):
    """Sequences as a training of somebody else draws them."""
    x = rng.standard_normal((count, 9, 2)) * np.sqrt([1.0, 0.5])
    y = np.einsum("bnd,bd->bn", x, rng.standard_normal((count, 2)))
    return [np.float32(part) for part in (x[:, :-1], y[:, :-1], x[:, -1], y[:, -1])]


# JAX ----------------------------------------------------------------------------------------------


class Step(eqx.Module):
    size: jax.Array

    def __call__(self, x, y, query):
        assert x.dtype == jnp.float32
        return self.size * jnp.einsum("bnd,bn,bd->b", x, y, query) / x.shape[1]


def descend(loss, weights, count, each):
    """A training loop in JAX; `each` is called before every step."""
    rng = np.random.default_rng(0)
    grad = jax.jit(jax.grad(loss))
    for number in range(count + 1):
        each(number, weights)
        slope = grad(weights, *draw(rng))
        weights = jax.tree.map(lambda w, g: w - 0.1 * g, weights, slope)


def check_steps(looks):
    assert [look.step for look in looks] == [0, 10, 20]
    assert looks[0].nearest[0].name == "PCR with 0 components"
    assert looks[-1].nearest[0].name == "one gradient step" and looks[-1].closeness == ("equal",)
    assert looks[-1].loss.value < looks[0].loss.value


def test_an_equinox_module_is_watched_by_its_present_weights(task):
    state = {"model": Step(jnp.float32(0.0))}
    predict = icl.watch.jax(lambda model, *parts: model(*parts), lambda: state["model"])
    watched = icl.watch(task, predict, every=10, count=100, strict=True)

    def each(number, model):
        state["model"] = model
        watched(number)

    descend(lambda m, x, y, q, t: jnp.mean((m(x, y, q) - t) ** 2), state["model"], 20, each)
    check_steps(watched.looks)


def test_a_plain_tree_of_parameters_is_watched_with_its_heads(task):
    def predict(weights, x, y, query):
        scores = jnp.einsum("bnd,de,be->bn", x, weights["key_query"], query)
        return weights["value"] * jnp.sum(scores * y, 1) / x.shape[1]

    def circuits():
        kq = np.zeros((1, 3, 2))
        kq[0, :2] = state["weights"]["key_query"]
        return kq, np.array([[[0.0, 0.0, state["weights"]["value"]]]])

    state = {"weights": {"key_query": 0.1 * jnp.eye(2), "value": jnp.float32(0.1)}}
    state = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), state)
    watched = icl.watch(
        task,
        icl.watch.jax(predict, lambda: state["weights"]),
        every=10,
        count=100,
        strict=True,
        circuits=circuits,
    )

    def each(number, weights):
        state["weights"] = weights
        watched(number)

    loss = lambda w, x, y, q, t: jnp.mean((predict(w, x, y, q) - t) ** 2)
    descend(loss, state["weights"], 100, each)
    last = watched.looks[-1]
    assert last.loss.value < 0.7 * watched.looks[0].loss.value
    (head,) = last.layers[0].labels[0].heads
    assert head.mu == pytest.approx(float(circuits()[1][0, 0, 2])) and head.omega > 0.3


def test_a_training_in_float32_stays_there(task):
    state = Step(jnp.float32(0.5))
    with jax.enable_x64(False):
        key = jr.key(0)
        watched = icl.watch(task, icl.watch.jax(state), every=1, count=50, strict=True)
        assert watched(0) is not None and jr.normal(key).dtype == jnp.float32


# Trainers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "libraries"),
    [("huggingface", ["transformers"]), ("lightning", ["lightning", "pytorch_lightning"])],
)
def test_a_library_that_is_missing_is_named_with_its_extra(task, monkeypatch, name, libraries):
    for library in libraries:
        monkeypatch.setitem(sys.modules, library, None)
    watched = icl.watch(task, lambda x, y, q: np.zeros(len(x)), count=50)
    with pytest.raises(InputError, match=f"`{libraries[-1]}` is not installed: `pip install"):
        getattr(icl.watch, name)(watched)


class Counted:
    """A watch that counts its looks: every fifth step is due."""

    def __init__(self):
        self.looks, self.problems = [], {}

    def __call__(self, step, force=False):
        if step % 5 == 0 or force:
            self.looks.append(types.SimpleNamespace(step=step))


def steps_seen(watched):
    return [look.step for look in watched.looks]


@pytest.mark.parametrize(("last", "expected"), [(10, [0, 5, 10]), (7, [0, 5, 7])])
def test_callbacks_look_at_each_step_once(monkeypatch, last, expected):
    """Also at the end, and where a step of Lightning is made of two batches."""
    base = types.SimpleNamespace(TrainerCallback=object, Callback=object)
    for library in ("transformers", "lightning", "lightning.pytorch"):
        monkeypatch.setitem(sys.modules, library, base)
    state = types.SimpleNamespace(global_step=0, is_world_process_zero=True, is_global_zero=True)
    control = types.SimpleNamespace(should_training_stop=False)
    arguments = types.SimpleNamespace(load_best_model_at_end=False)
    theirs, others = Counted(), Counted()
    trainer, fabric = icl.watch.huggingface(theirs), icl.watch.lightning(others)
    trainer.on_train_begin(arguments, state, control)
    fabric.on_train_start(state, None)
    for batch in range(1, 2 * last + 1):
        state.global_step = batch // 2
        fabric.on_train_batch_end(state, None, None, None, batch)
        if batch % 2 == 0:
            trainer.on_step_end(arguments, state, control)
    trainer.on_train_end(arguments, state, control)
    fabric.on_train_end(state, None)
    assert steps_seen(theirs) == steps_seen(others) == expected
    state.global_step, state.is_world_process_zero, state.is_global_zero = 15, False, False
    trainer.on_step_end(arguments, state, control)
    fabric.on_train_end(state, None)
    assert steps_seen(theirs) == steps_seen(others) == expected


def test_weights_that_are_loaded_at_the_end_are_not_taken_for_those_of_the_last_step(monkeypatch):
    base = types.SimpleNamespace(TrainerCallback=object)
    monkeypatch.setitem(sys.modules, "transformers", base)
    state = types.SimpleNamespace(global_step=0, is_world_process_zero=True)
    arguments = types.SimpleNamespace(load_best_model_at_end=True)
    for stops in (True, False):  # by the number of steps, or by what an evaluation found
        watched = Counted()
        trainer = icl.watch.huggingface(watched)
        for state.global_step in range(1, 8):
            last = stops and state.global_step == 7
            control = types.SimpleNamespace(should_training_stop=last)
            trainer.on_step_end(arguments, state, control)
        trainer.on_train_end(arguments, state, control)
        assert steps_seen(watched) == ([5, 7] if stops else [5])


def torch_step():
    """A module of PyTorch as `transformers` trains it: it returns its loss."""
    torch = pytest.importorskip("torch")

    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.size = torch.nn.Parameter(torch.zeros(()))

        def predict(self, x, y, x_query):
            return self.size * torch.einsum("bnd,bn,bd->b", x, y, x_query) / x.shape[1]

        def forward(self, x, y, x_query, labels):
            return {"loss": ((self.predict(x, y, x_query) - labels) ** 2).mean()}

    return Module()


def rows(count):
    """One sequence after the other, as data sets of PyTorch have them."""
    parts = draw(np.random.default_rng(0), count)
    return [dict(zip(("x", "y", "x_query", "labels"), each)) for each in zip(*parts)]


def watch_module(task, model):
    predict = icl.watch.torch(model, lambda module, *parts: module.predict(*parts))
    return icl.watch(task, predict, every=10, count=100, strict=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of other libraries
def test_the_trainer_of_transformers_is_watched(task, tmp_path):
    model = torch_step()
    transformers = pytest.importorskip("transformers")
    watched = watch_module(task, model)
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=25,
        per_device_train_batch_size=32,
        learning_rate=0.1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(model, arguments, train_dataset=rows(25 * 32))
    trainer.add_callback(icl.watch.huggingface(watched))
    trainer.train()
    assert [look.step for look in watched.looks] == [0, 10, 20, 25]
    assert watched.looks[-1].nearest[0].name == "one gradient step" and model.training


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_trainer_of_lightning_is_watched(task, tmp_path):
    model = torch_step()
    lightning = pytest.importorskip("pytorch_lightning")
    import torch

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model

        def training_step(self, batch, index):
            return self.model(**batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.1)

    watched = watch_module(task, model)
    trainer = lightning.Trainer(
        max_steps=25,
        callbacks=[icl.watch.lightning(watched)],
        default_root_dir=tmp_path,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Lit(), torch.utils.data.DataLoader(rows(25 * 32), batch_size=32))
    assert [look.step for look in watched.looks] == [0, 10, 20, 25]
    assert watched.looks[-1].nearest[0].name == "one gradient step" and model.training
