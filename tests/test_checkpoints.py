"""Models in files: ours, and state dicts with stacked projections; `iclflow inspect` on both."""

import json

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from safetensors.numpy import save_file

from iclflow.checkpoints import from_state_dict, load_model, save_model
from iclflow.cli import main
from iclflow.models import FactoredAttention, MultiFactored, StructuredAttention
from iclflow.tasks import LinearRegression, MultiTaskRegression

DIM = 5
OMEGA, MU = (0.13, -0.13, 0.0), (3.45, -3.45, 0.01)


def stacked(omega=OMEGA, mu=MU, dim=DIM, outputs=1, seed=0) -> dict[str, np.ndarray]:
    """A state dict as the authors of arXiv 2503.12734 train it: heads as wide as a token, queries,
    keys and values stacked by rows, scores divided by the square root of the width."""
    generator, token = np.random.default_rng(seed), dim + 1
    parts = {name: [] for name in "qkvo"}
    for w, m in zip(omega, mu):
        turn, _ = np.linalg.qr(generator.normal(size=(token, token)))
        mix, _ = np.linalg.qr(generator.normal(size=(token, token)))
        product = np.zeros((token, token))
        product[:dim, :dim] = w * np.sqrt(token) * np.eye(dim)
        row = np.zeros(token)
        row[-1] = m
        parts["k"].append(turn)
        parts["q"].append(turn @ product)
        parts["v"].append(mix)
        parts["o"].append(np.vstack([generator.normal(size=(outputs - 1, token)), row @ mix.T]))
    tensors = {f"layer.{n}_proj.weight": np.concatenate(parts[n]) for n in "qkv"}
    return tensors | {"layer.o_proj.weight": np.concatenate(parts["o"], axis=1)}


def sequences(count=50):
    return LinearRegression(np.ones(DIM), 12, noise=0.1).sample(jr.key(3), count)


def plain_layer(tensors, batch, heads):
    """The layer as PyTorch code would compute it, in NumPy: the query attends to the context."""
    q, k, v, o = (tensors[f"layer.{n}_proj.weight"] for n in "qkvo")
    tokens = np.concatenate([batch.x, np.asarray(batch.y)[..., None]], -1)
    query = np.pad(np.asarray(batch.x_query), ((0, 0), (0, 1)))
    width = q.shape[0] // heads
    outputs = []
    for z, z_q in zip(tokens, query):
        keys, values, asked = z @ k.T, z @ v.T, q @ z_q
        mixed = []
        for h in range(heads):
            part = slice(h * width, (h + 1) * width)
            scores = keys[:, part] @ asked[part] / np.sqrt(width)
            weights = np.exp(scores - scores.max())
            mixed.append(weights / weights.sum() @ values[:, part])
        outputs.append(o @ np.concatenate(mixed))
    return np.asarray(outputs)


@pytest.mark.parametrize("outputs", [1, DIM + 1])
def test_a_state_dict_predicts_what_its_own_layer_does(outputs):
    tensors, batch = stacked(outputs=outputs), sequences()
    model = from_state_dict(tensors)
    expected = plain_layer(tensors, batch, 3)[:, -1]
    assert np.asarray(model.predict(batch)) == pytest.approx(expected, abs=1e-12)


def test_heads_narrower_than_a_token_are_counted_by_the_user():
    generator = np.random.default_rng(1)
    shapes = {"q": (8, 6), "k": (8, 6), "v": (8, 6), "o": (1, 8)}
    tensors = {f"layer.{n}_proj.weight": generator.normal(size=s) for n, s in shapes.items()}
    with pytest.raises(ValueError, match="say how many heads"):
        from_state_dict(tensors)
    batch = sequences()
    for heads in (2, 4):
        prediction = np.asarray(from_state_dict(tensors, heads=heads).predict(batch))
        assert prediction == pytest.approx(plain_layer(tensors, batch, heads)[:, 0], abs=1e-12)


def test_several_outputs_make_a_model_of_several_labels():
    generator = np.random.default_rng(2)
    shapes = {"q": (16, 8), "k": (16, 8), "v": (16, 8), "o": (2, 16)}
    tensors = {f"{n}_proj.weight": generator.normal(size=s) for n, s in shapes.items()}
    model = from_state_dict(tensors)
    assert isinstance(model, MultiFactored)
    task = MultiTaskRegression([[0, 1, 2], [3, 4, 5]], context=7)
    assert model.predict(task.sample(jr.key(0), 4)).shape == (4, 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop("layer.q_proj.weight"), "no `q_proj.weight`"),
        (lambda t: t.update({"b.q_proj.weight": t["layer.q_proj.weight"]}), "2 attention layers"),
        (lambda t: t.update({"layer.k_proj.weight": np.ones((3, 3))}), "projections of shapes"),
        (lambda t: t.update({"layer.v_proj.bias": np.ones(18)}), "a bias in v_proj"),
        (lambda t: t["layer.o_proj.weight"].fill(np.nan), "finite numbers"),
    ],
)
def test_what_is_no_such_layer_is_refused_with_its_reason(change, words):
    tensors = stacked()
    change(tensors)
    with pytest.raises(ValueError, match=words):
        from_state_dict(tensors)


def test_a_model_comes_back_from_its_file(tmp_path):
    for model in (
        StructuredAttention(omega=jnp.asarray(OMEGA), mu=jnp.asarray(MU), dim=DIM),
        FactoredAttention.init(jr.key(0), DIM, 2, activation="linear"),
    ):
        save_model(model, tmp_path / "model.safetensors")
        again = load_model(tmp_path / "model.safetensors")
        assert type(again) is type(model) and again.activation == model.activation
        assert np.array_equal(again.predict(sequences()), model.predict(sequences()))


def inspected(capsys, *arguments):
    code = main(["inspect", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def test_inspect_tells_roles_and_algorithm_of_a_foreign_state_dict(tmp_path, capsys):
    path = tmp_path / "trained.safetensors"
    save_file({k: v.astype(np.float32) for k, v in stacked().items()}, path)
    code, out, _ = inspected(capsys, path, "--sequences", 3000, "--json")
    found = json.loads(out)
    label = found["labels"][0]
    assert code == 0 and found["context"] == [40]
    assert [head["role"] for head in label["heads"]] == ["positive", "negative", "dummy"]
    assert label["algorithm"].startswith("one debiased gradient step, η = 0.8")
    # The exact loss of this pair is .243244; the dummy head hardly changes it.
    assert abs(found["loss"] - 0.24324) < 4 * found["loss_standard_error"] + 1e-4


def test_inspect_draws_the_circuits_and_prints_a_table(tmp_path, capsys):
    path = tmp_path / "one.safetensors"
    model = StructuredAttention(omega=jnp.asarray([0.518]), mu=jnp.asarray([1.497]), dim=DIM)
    save_model(model, path)
    code, out, _ = inspected(capsys, path, "--sequences", 500, "--out", tmp_path / "picture")
    assert code == 0 and "kernel regression" in out and "positive" in out
    assert {p.name for p in (tmp_path / "picture").iterdir()} == {"heads.pdf", "heads.png"}


def test_inspect_reads_a_pytorch_file_through_the_loader_for_weights(tmp_path, capsys):
    torch = pytest.importorskip("torch")
    path = tmp_path / "trained.pth"
    torch.save({k: torch.tensor(v) for k, v in stacked().items()}, path)
    code, out, _ = inspected(capsys, path, "--sequences", 500, "--json")
    assert code == 0 and json.loads(out)["model"] == "FactoredAttention"
    path.write_bytes(b"no such thing")
    code, _, err = inspected(capsys, path)
    assert code == 2 and "cannot be read as weights alone" in err


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("missing.safetensors", None, "does not exist"),
        ("text.safetensors", b"hello there, this is no such file", "not a safetensors file"),
        ("empty.safetensors", b"", "not a safetensors file"),
    ],
)
def test_inspect_refuses_what_is_no_checkpoint_in_one_sentence(
    tmp_path, capsys, name, content, words
):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    code, out, err = inspected(capsys, tmp_path / name, "--out", tmp_path / "picture")
    assert code == 2 and out == "" and words in err and err.count("\n") == 1
    assert not (tmp_path / "picture").exists()


def test_inspect_refuses_tasks_that_do_not_fit(tmp_path, capsys):
    path = tmp_path / "model.safetensors"
    save_model(StructuredAttention(jnp.asarray(OMEGA), jnp.asarray(MU), dim=DIM), path)
    for arguments, words in (
        (("--eigenvalues", 1, 2), "must have 5"),
        (("--noise", -1), "`noise` = -1"),
        (("--context", 0), "`context`"),
        (("--sequences", 1), "must be at least 2"),
    ):
        code, _, err = inspected(capsys, path, *arguments)
        assert code == 2 and words in err
