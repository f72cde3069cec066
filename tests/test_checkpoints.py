"""Models in files: ours, and state dicts with stacked projections."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float
from safetensors.numpy import save_file

from iclflow.checkpoints import from_state_dict, load_model, save_model
from iclflow.files import FileError
from iclflow.models import AbstractCircuits, Attention, Diagonal, Factored, Merged
from iclflow.tasks import MultiTaskRegression, Sequences
from state_dicts import DIM, MU, OMEGA, stacked, two_labels


def sequences(count=50, context=12) -> Sequences:
    """Any sequences, drawn by NumPy: nothing is compiled for them."""
    rng = np.random.default_rng(3)
    shapes = (context, DIM), (context, 1), (DIM,), (1,)
    parts = (jnp.asarray(rng.normal(size=(count, *shape))) for shape in shapes)
    return Sequences(*parts, length=jnp.asarray(np.full(count, float(context))))


def plain_layer(tensors, batch, heads):
    """The layer as PyTorch code would compute it, in NumPy: the query attends to the context."""
    q, k, v, o = (tensors[f"layer.{n}_proj.weight"] for n in "qkvo")
    tokens = np.concatenate([batch.x, batch.y], -1)
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
    model = from_state_dict(tensors, heads=3)
    expected = plain_layer(tensors, batch, 3)[:, -1:]
    assert np.asarray(model.predict(batch)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("width", [3, DIM + 1, 10])
def test_how_rows_are_divided_into_heads_is_never_guessed(width):
    # Two heads of width 3 have as many rows as a token has entries, as any layer of PyTorch has.
    generator, rows = np.random.default_rng(0), 2 * width
    shapes = {"q": (rows, DIM + 1), "k": (rows, DIM + 1), "v": (rows, DIM + 1), "o": (1, rows)}
    tensors = {f"layer.{n}_proj.weight": generator.normal(size=s) for n, s in shapes.items()}
    tensor = rf"`layer.q_proj.weight` of `state dict`, of shape \({rows}, 6\)"
    with pytest.raises(ValueError, match=f"`heads` is missing.*{tensor}, .* one of 1, 2, "):
        from_state_dict(tensors)
    with pytest.raises(ValueError, match="`heads` = 7: .* must be one of 1, 2, "):
        from_state_dict(tensors, heads=7)
    # The same rows in another number of heads are another layer: the user alone knows.
    batch = sequences()
    for heads in (1, 2):
        prediction = np.asarray(from_state_dict(tensors, heads=heads).predict(batch))
        assert prediction == pytest.approx(plain_layer(tensors, batch, heads)[:, :1], abs=1e-12)


def test_one_row_is_one_head():
    tensors = {f"{n}_proj.weight": np.ones((1, DIM + 1)) for n in "qkv"}
    model = from_state_dict(tensors | {"o_proj.weight": np.ones((1, 1))})
    assert model.kq().shape == (1, DIM + 1, DIM)


@pytest.mark.parametrize("name", ["heads", "num_heads", "num_attention_heads"])
def test_the_number_of_heads_that_a_file_states_is_read(tmp_path, name):
    path = tmp_path / "stated.safetensors"
    save_file(stacked(), path, metadata={name: "3", "format": "pt"})
    assert load_model(path).kq().shape[0] == 3
    with pytest.raises(
        ValueError, match="`heads` = 2: `.*stated.safetensors` says that there are 3"
    ):
        load_model(path, heads=2)
    save_file(stacked(), path, metadata={name: "7"})
    with pytest.raises(ValueError, match="`heads` = 7: .* has 18 rows: must be one of"):
        load_model(path)
    save_file(stacked(), path, metadata={"heads": "3", "n_heads": "2"})
    with pytest.raises(ValueError, match="`heads` is missing.* one of 1, 2, 3, 6, 9, 18"):
        load_model(path)


def test_the_layer_of_pytorch_with_its_projections_in_one_matrix_is_read():
    plain, batch = stacked(outputs=6), sequences()
    joined = np.concatenate([plain[f"layer.{n}_proj.weight"] for n in "qkv"])
    tensors = {
        "attn.in_proj_weight": joined,
        "attn.out_proj.weight": plain["layer.o_proj.weight"],
        "attn.in_proj_bias": np.zeros(54),
        "attn.out_proj.bias": np.zeros(6),
    }
    model = from_state_dict(tensors, heads=3)
    expected = plain_layer(plain, batch, 3)[:, -1:]
    assert np.asarray(model.predict(batch)) == pytest.approx(expected, abs=1e-12)
    with pytest.raises(ValueError, match=r"`attn.in_proj_weight` .* \(54, 6\), has 18 rows"):
        from_state_dict(tensors)
    tensors["attn.in_proj_bias"] = np.ones(54)
    with pytest.raises(ValueError, match="a bias, `attn.in_proj_bias`"):
        from_state_dict(tensors, heads=3)


def test_several_outputs_make_a_model_of_several_labels():
    model = from_state_dict(two_labels(), heads=2)
    assert isinstance(model.circuits, Factored) and model.labels == 2
    task = MultiTaskRegression([[0, 1, 2], [3, 4, 5]], context=7)
    # Of the sequences of a task the shapes alone matter here.
    shapes = jax.eval_shape(lambda key: task.sample(key, 4), jr.key(0))
    batch = jax.tree.map(lambda part: jnp.asarray(np.full(part.shape, 7.0)), shapes)
    assert model.predict(batch).shape == (4, 2)


@pytest.mark.parametrize(
    ("tensors", "labels", "words"),
    [
        (two_labels(), 1, "`labels` = 1: must be 2, as `state dict` has 2 outputs"),
        (stacked(), 2, "`labels` = 2: must be 1, as `state dict` has 1 output\\."),
        (stacked(outputs=6), 6, "`labels` = 6: must lie between 1 and 5"),
        (stacked(outputs=7), None, "7 outputs for tokens of size 6"),
    ],
)
def test_labels_that_do_not_fit_the_outputs_are_refused(tensors, labels, words):
    with pytest.raises(ValueError, match=words):
        from_state_dict(tensors, 1, labels)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop("layer.q_proj.weight"), "no `q_proj.weight`"),
        (lambda t: t.update({"b.q_proj.weight": t["layer.q_proj.weight"]}), "2 attention layers"),
        (lambda t: t.update({"layer.k_proj.weight": np.ones((3, 3))}), "projections of shapes"),
        (lambda t: t.update({"layer.v_proj.bias": np.ones(18)}), "a bias, `layer.v_proj.bias`"),
        (lambda t: t.update({"layer.q_norm.weight": np.ones(6)}), "has `layer.q_norm.weight` in"),
        (lambda t: t.update({"layer.v_proj.lora_A.weight": np.ones((2, 7))}), "lora_A.weight` in"),
        (lambda t: t["layer.o_proj.weight"].fill(np.nan), "finite numbers"),
        (
            lambda t: t.update({"layer.q_proj.weight": np.ones((18, 6), np.int8)}),
            "type int8: must be a matrix of finite numbers, in floating point",
        ),
    ],
)
def test_what_is_no_such_layer_is_refused_with_its_reason(change, words):
    tensors = stacked()
    change(tensors)
    with pytest.raises(ValueError, match=words):
        from_state_dict(tensors)


def test_a_model_comes_back_from_its_file(tmp_path):
    for model in (
        Attention(Diagonal(jnp.asarray(OMEGA), jnp.asarray(MU), DIM)),
        Attention.factored(jr.key(0), DIM, 2, activation="linear"),
    ):
        save_model(model, tmp_path / "model.safetensors")
        again = load_model(tmp_path / "model.safetensors")
        assert type(again.circuits) is type(model.circuits) and again.activation == model.activation
        assert np.array_equal(again.predict(sequences()), model.predict(sequences()))


def test_what_a_file_of_ours_says_itself_cannot_be_given(tmp_path):
    path = tmp_path / "model.safetensors"
    save_model(Attention(Diagonal(jnp.asarray(OMEGA), jnp.asarray(MU), DIM)), path)
    with pytest.raises(ValueError, match="`heads` = 3: .* says itself how many heads"):
        load_model(path, heads=3)
    with pytest.raises(ValueError, match="`labels` = 1: .* says itself how many labels"):
        load_model(path, labels=1)


@pytest.mark.parametrize("name", ["config.toml", "manifest.json", "weights.safetensors"])
def test_files_that_hold_no_weights_are_refused_in_words_of_our_own(tmp_path, name):
    (tmp_path / name).write_text('{"name": "hello there, this is no such file"}')
    with pytest.raises(ValueError, match=r"is not a safetensors file of numbers: give one, a PyT"):
        load_model(tmp_path / name)


def test_a_safetensors_file_without_our_mark_is_read_as_a_state_dict(tmp_path):
    save_file(stacked(), tmp_path / "foreign.safetensors")
    assert isinstance(load_model(tmp_path / "foreign.safetensors", heads=3).circuits, Factored)


class OneMatrix(AbstractCircuits):
    """Circuits that are not part of the library: one key-query matrix, and values of 1."""

    block: Float[Array, "H D D"]

    @property
    def dim(self) -> int:
        return self.block.shape[-1]

    @property
    def heads(self) -> int:
        return self.block.shape[-3]

    @property
    def labels(self) -> int:
        return 1

    @property
    def blind(self) -> bool:
        return True

    def kq(self):
        return jnp.pad(self.block, ((0, 0), (0, 1), (0, 0)))

    def ov(self):
        return jnp.zeros((self.heads, 1, self.dim + 1)).at[:, 0, -1].set(1.0)


def test_circuits_of_ones_own_load_with_their_class(tmp_path):
    model = Attention(OneMatrix(jnp.asarray(np.ones((2, DIM, DIM)))))
    save_model(model, tmp_path / "own.safetensors")
    again = load_model(tmp_path / "own.safetensors", model_class=OneMatrix)
    assert type(again.circuits) is OneMatrix
    np.testing.assert_array_equal(again.predict(sequences()), model.predict(sequences()))
    with pytest.raises(FileError, match="'OneMatrix': must be one of .* as `model_class`"):
        load_model(tmp_path / "own.safetensors")
    with pytest.raises(FileError, match=r"'OneMatrix': must be one of Merged\."):
        load_model(tmp_path / "own.safetensors", model_class=Merged)
