"""Modules of PyTorch, watched. Skipped where PyTorch is not installed."""

import time

import numpy as np
import pytest

import iclflow as icl

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def task():
    return icl.LinearRegression(eigenvalues=[1.0, 0.5], context=8, noise=0.1)


def look_at(watched, step=0):
    """A look that is due."""
    found = watched(step)
    assert found is not None
    return found


class Step(torch.nn.Module):
    """One gradient step of a size that is trained."""

    def __init__(self, size: float):
        super().__init__()
        self.size = torch.nn.Parameter(torch.tensor(size))
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, x, y, query):
        assert x.dtype == self.size.dtype and x.device == self.size.device
        return self.dropout(self.size * torch.einsum("bnd,bn,bd->b", x, y, query) / x.shape[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_module_is_called_in_its_own_precision_and_left_as_it_was(task, dtype):
    model = Step(0.7).to(dtype)
    model.dropout.eval()
    state = torch.get_rng_state()
    look = look_at(icl.watch(task, model, every=1, count=100, strict=True))
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training and not model.dropout.training and model.size.grad is None
    exact = dtype != torch.bfloat16
    assert look.nearest[0].name == "one gradient step"
    assert look.nearest[0].distance < (1e-4 if exact else 0.02)
    assert look.nearest[0].step_size == pytest.approx(0.7, rel=1e-5 if exact else 0.01)


def test_dropout_is_off_while_a_training_module_is_watched(task):
    model = Step(0.7).train()
    watched = icl.watch(task, model, every=1, count=100, strict=True)
    assert look_at(watched).loss == look_at(watched, 1).loss and model.dropout.training


def test_a_module_with_another_signature_is_called_as_one_says(task):
    class Tokens(torch.nn.Module):
        """Pairs as tokens, the query with the label 0."""

        def forward(self, tokens):
            x, y = tokens[:, :-1, :-1], tokens[:, :-1, -1]
            return 0.5 * torch.einsum("bnd,bn,bd->b", x, y, tokens[:, -1, :-1]) / x.shape[1]

    def call(model, x, y, query):
        pairs = torch.cat([x, y[..., None]], -1)
        last = torch.cat([query, torch.zeros_like(query[:, :1])], -1)
        return model(torch.cat([pairs, last[:, None]], 1))

    watched = icl.watch(task, icl.watch.torch(Tokens(), call), every=1, count=100, strict=True)
    assert look_at(watched).nearest[0].step_size == pytest.approx(0.5, rel=1e-5)


def test_five_lines_watch_a_training_loop(task, tmp_path):
    torch.manual_seed(0)
    model = Step(0.0).eval()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    rng = np.random.default_rng(0)
    watched = icl.watch(task, model, every=20, out=tmp_path, count=200)
    for step in range(101):
        scale = np.sqrt([1.0, 0.5])
        x = rng.standard_normal((64, 9, 2)) * scale
        w = rng.standard_normal((64, 2))
        y = np.einsum("bnd,bd->bn", x, w) + np.sqrt(0.1) * rng.standard_normal((64, 9))
        parts = (x[:, :-1], y[:, :-1], x[:, -1])
        predicted = model(*(torch.tensor(part, dtype=torch.float32) for part in parts))
        watched(step)
        loss = torch.mean((predicted - torch.tensor(y[:, -1])) ** 2)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    looks = watched.looks
    assert [look.step for look in looks] == [0, 20, 40, 60, 80, 100]
    assert looks[0].nearest[0].name == "PCR with 0 components"
    assert looks[-1].nearest[0].name == "one gradient step"
    assert looks[-1].loss.value < looks[0].loss.value


def test_tensorboard_gets_every_number(task):
    seen = {}

    class Writer:
        def add_scalar(self, name, value, step):
            seen[name] = value, step

    icl.watch(task, Step(0.5), every=1, count=50, log=icl.watch.tensorboard(Writer()))(7)
    assert seen["icl/loss"][1] == 7 and len(seen) > 5


@pytest.mark.timed
def test_a_budget_is_kept_in_wall_time(task):
    model = Step(0.5)
    watched = icl.watch(task, model, budget=0.05, count=500)
    watched(0)  # compiles
    watched._begun, watched._spent = time.perf_counter(), 0.0
    for step in range(1, 200):
        time.sleep(0.02)
        watched(step)
    assert watched.overhead < 0.05 and len(watched.looks) > 2
