"""Modules of PyTorch, watched. Skipped where PyTorch is not installed."""

import time

import numpy as np
import pytest

import iclflow as icl
from iclflow.analysis import roles
from iclflow.checkpoints import to_state_dict
from test_docs import blocks

torch = pytest.importorskip("torch")
# `make test` does without PyTorch, also where it is installed.
pytestmark = pytest.mark.slow


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


class Noisy(torch.nn.Module):
    """A module with dropout and running means, which draws random numbers in any mode."""

    def __init__(self):
        super().__init__()
        parts = torch.nn.Linear(2, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(), torch.nn.ReLU()
        self.parts = torch.nn.Sequential(*parts, torch.nn.Linear(8, 1))

    def forward(self, x, y, query):
        return self.parts(query)[:, 0] + torch.randn(len(query))


def test_a_training_makes_the_steps_that_it_makes_without_a_watch(task):
    def train(is_watched):
        torch.manual_seed(3)
        model = Noisy()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        watched = icl.watch(task, model, every=2, count=50, strict=True) if is_watched else None
        for step in range(6):
            assert watched is None or (watched(step) is None) == (step % 2 == 1)
            optimizer.zero_grad()
            x, y, query = torch.randn(8, 5, 2), torch.randn(8, 5), torch.randn(8, 2)
            ((model(x, y, query) - y[:, 0]) ** 2).mean().backward()
            optimizer.step()
        return model.state_dict()

    alone, watched = train(False), train(True)
    assert all(torch.equal(alone[name], watched[name]) for name in alone)


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


# Layers of attention ------------------------------------------------------------------------------


def written_out(heads, width, inputs=5):
    """The layer of the documentation, written by hand in PyTorch."""
    (program,) = blocks("docs/inspect.md", "py")
    space = {"__name__": "layer"}
    exec(program.source.split("layer = Attention()")[0], space)
    return space["Attention"](inputs, heads, width)


@pytest.mark.timeout(900)
def test_our_own_layer_in_pytorch_has_the_numbers_of_our_own_run():
    run = icl.run("softmax/adam")
    task, trajectory = run.experiment.task, run.trajectory
    model = trajectory.final
    layer = written_out(model.heads, model.circuits.width)
    reader = icl.watch.heads(layer, model.heads)
    theirs = icl.watch(task, layer, every=1, count=500, circuits=reader, strict=True)
    own = icl.watch(task, lambda *_: 0, every=1, count=500, circuits=lambda: model, dtype="float64",
                    strict=True)  # fmt: skip
    for index in range(0, len(trajectory), 9):
        model = trajectory.at(index)
        tensors = {name: torch.tensor(part) for name, part in to_state_dict(model).items()}
        layer.load_state_dict(tensors)
        own._predict = lambda *parts: _predict_own(model, task, parts)
        look, expected = theirs(index), own(index)
        assert look.loss.value == pytest.approx(expected.loss.value, rel=1e-5)
        assert look.excess.value == pytest.approx(expected.excess.value, rel=1e-4)
        for here, there in zip(look.losses, expected.losses):
            assert here.value == pytest.approx(there.value, rel=1e-5)
        distances = {each.name: each.distance for each in expected.distances[0]}
        assert {each.name: each.distance for each in look.distances[0]} == pytest.approx(
            distances, rel=1e-4, abs=1e-5
        )
        assert look.nearest[0].name == expected.nearest[0].name
        assert look.layers[0].roles == expected.layers[0].roles == roles(model, task)
        for here, there in zip(look.layers[0].labels[0].heads, expected.layers[0].labels[0].heads):
            assert (here.omega, here.mu) == pytest.approx(
                (there.omega, there.mu), rel=1e-4, abs=1e-6
            )
    assert set(look.layers[0].roles) == {"positive", "negative"}


def _predict_own(model, task, parts):
    """Our own layer on arrays, in float64."""
    import jax.numpy as jnp

    x, y, query = (jnp.asarray(part, float) for part in parts)
    length = jnp.full(len(x), float(x.shape[1]))
    sequences = icl.Sequences(x, y[..., None], query, jnp.zeros((len(x), 1)), length)
    return np.asarray(model.predict(sequences))


def test_multihead_attention_is_read_as_it_attends(task):
    """Against the attention weights that PyTorch itself returns."""
    torch.manual_seed(0)
    attention = torch.nn.MultiheadAttention(4, 2, bias=False, batch_first=True).double()
    embed, unembed = torch.randn(4, 3).double(), torch.randn(1, 4).double()
    reader = icl.watch.heads(attention, embed=embed, unembed=unembed)
    (layer,) = reader(1)
    assert layer.left_out == ()
    rng = np.random.default_rng(0)
    z, x_q = rng.normal(size=(6, 3)), rng.normal(size=2)
    scores = np.einsum("na,hac,c->hn", z, np.asarray(layer.model.kq()), x_q)
    own = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    tokens = (torch.tensor(z) @ embed.T)[None]
    query = (torch.tensor(np.append(x_q, 0.0)) @ embed.T)[None, None]
    found = attention(query, tokens, tokens, average_attn_weights=False)
    output, weights = found[0].detach()[0, 0], found[1].detach()[0, :, 0]
    assert own == pytest.approx(weights.numpy(), abs=1e-12)
    read = np.einsum("hn,na,hia->i", own, z, np.asarray(layer.model.ov()))
    assert read == pytest.approx((unembed @ output).numpy(), abs=1e-12)


def test_gpt2_is_read_as_its_own_layers_compute():
    """Scores from the modules of `transformers`, with the scale of norms taken out."""
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_positions=8, n_embd=12, n_layer=2, n_head=3, vocab_size=1,
                                     bos_token_id=0, eos_token_id=0)  # fmt: skip
    torch.manual_seed(0)
    model = transformers.GPT2Model(config).double().eval()
    for norm in (*(block.ln_1 for block in model.h), model.ln_f):
        torch.nn.init.uniform_(norm.weight, 0.5, 2.0)
    embed, unembed = torch.randn(12, 4).double(), torch.randn(1, 12).double()
    layers = icl.watch.heads(model, embed=embed, unembed=unembed)(1)
    assert [layer.name for layer in layers] == ["h.0.attn", "h.1.attn"]
    *known, others = layers[0].left_out
    assert known == ["the scale of norms", "positions", "what other layers write"]
    assert others == "other parts (`wte`, `ln_2`, `c_fc`, `c_proj`)"
    key, query = torch.randn(4).double(), torch.randn(4).double()
    query[-1] = 0
    scale = lambda r: torch.sqrt(r.var(unbiased=False) + config.layer_norm_epsilon)
    for block, layer in zip(model.h, layers):
        r = torch.stack([embed @ key, embed @ query])
        sizes = [scale(each) for each in r]
        with torch.no_grad():
            q, k, v = block.attn.c_attn(block.ln_1(r)[None])[0].split(12, -1)
            part = [q[1].view(3, 4), k[0].view(3, 4)]
            expected = (part[0] * part[1]).sum(-1) / 4**0.5 * sizes[0] * sizes[1]
            score = np.einsum("a,hac,c->h", key, np.asarray(layer.model.kq()), query[:-1])
            assert score == pytest.approx(expected.numpy(), rel=1e-9)
            # What one head writes, through the last norm.
            for h in range(3):
                only = torch.zeros(12).double()
                only[4 * h : 4 * h + 4] = v[0][4 * h : 4 * h + 4] * sizes[0]
                wrote = block.attn.c_proj(only[None])[0]
                expected = unembed @ model.ln_f(wrote) * scale(wrote)
                read = np.asarray(layer.model.ov())[h] @ key.numpy()
                assert read == pytest.approx(expected.numpy(), rel=1e-9)


# What goes wrong ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("predict", "words"),
    [
        (lambda x, y, q: torch.full((len(x),), torch.nan), "predictions that are not finite"),
        (lambda x, y, q: torch.zeros(len(x), 3), r"the shape \(50, 3\)"),
        (lambda x, y, q: torch.zeros(len(x), dtype=torch.complex64), "no array of real numbers"),
        (lambda x, y, q: torch.zeros(len(x), device="meta"), "no array of real numbers"),
        (lambda x, y, q: torch.tensor(x) @ torch.ones(3), "raised RuntimeError"),
    ],
)
def test_tensors_that_cannot_be_used_are_one_sentence_and_the_training_goes_on(
    task, predict, words
):
    watched = icl.watch(task, predict, every=1, count=50)
    with pytest.warns(UserWarning, match=words) as caught:
        assert watched(0) is None
    assert str(caught[0].message).count("\n") == 0 and set(watched.problems) == {0}
    with pytest.raises(icl.watching.PredictionError, match=words):
        icl.watch(task, predict, every=1, count=50, strict=True)(0)


def test_a_module_that_fails_is_left_in_training_mode(task):
    class Fails(Step):
        def forward(self, x, y, query):
            raise RuntimeError("CUDA error: out of memory")

    model = Fails(0.5).train()
    with pytest.warns(UserWarning, match="CUDA error"):
        assert icl.watch(task, model, every=1, count=50)(0) is None
    assert model.training and model.dropout.training


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
