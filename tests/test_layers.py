"""Layers of attention in the state dicts of several libraries, read without these libraries."""

import numpy as np
import pytest

from iclflow.checkpoints import ReadIn, Weights, from_circuits, read_layers
from iclflow.errors import InputError
from iclflow.files import FileError

HEADS, WIDTH, DIM = 3, 2, 4
OUTER, TOKEN = HEADS * WIDTH, DIM + 1


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def heads_of(rng, outer=OUTER):
    """W_Q, W_K, W_V (H, outer, width) and W_O (H, width, outer), in the orientation of
    `HookedTransformer`."""
    shapes = [(HEADS, outer, WIDTH)] * 3 + [(HEADS, WIDTH, outer)]
    return [rng.normal(size=shape) for shape in shapes]


def as_hooked(parts, prefix="blocks.0.attn."):
    return {f"{prefix}W_{letter}": part for letter, part in zip("QKVO", parts)}


def as_linear(parts):
    """Rows of all heads, as `torch.nn.Linear` has them."""
    q, k, v, o = parts
    rows = [np.concatenate([head.T for head in part]) for part in (q, k, v)]
    return [*rows, np.concatenate([head.T for head in o], 1)]


def as_stacked(parts, prefix="layer."):
    return dict(zip((f"{prefix}{n}_proj.weight" for n in "qkvo"), as_linear(parts)))


def as_joined(parts, prefix="self_attn."):
    q, k, v, o = as_linear(parts)
    together = {f"{prefix}in_proj_weight": np.concatenate([q, k, v])}
    return together | {f"{prefix}out_proj.weight": o}


def as_gpt2(parts, prefix="transformer.h.0.attn."):
    """A `Conv1D` of `transformers`: inputs × outputs, side by side."""
    q, k, v, o = as_linear(parts)
    joined = np.concatenate([q.T, k.T, v.T], 1)
    return {f"{prefix}c_attn.weight": joined, f"{prefix}c_proj.weight": o.T}


def as_nanogpt(parts, prefix="transformer.h.0.attn."):
    q, k, v, o = as_linear(parts)
    return {f"{prefix}c_attn.weight": np.concatenate([q, k, v]), f"{prefix}c_proj.weight": o}


def expected(parts, embed, unembed):
    """The circuits of each head through a read-in and a read-out, head by head."""
    kq, ov = [], []
    for q, k, v, o in zip(*parts):
        kq.append((embed.T @ k) @ (q.T @ embed)[:, :DIM] / WIDTH**0.5)
        ov.append(unembed @ o.T @ v.T @ embed)
    return np.stack(kq), np.stack(ov)


LAYOUTS = [as_hooked, as_stacked, as_joined, as_gpt2, as_nanogpt]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_circuits_of_its_heads(rng, layout):
    parts = heads_of(rng)
    embed, unembed = rng.normal(size=(OUTER, TOKEN)), rng.normal(size=(1, OUTER))
    tensors = layout(parts) | {"read_in.weight": embed, "net.read_out.weight": unembed}
    read_in = ReadIn("read_in", "read_out")
    (layer,) = read_layers(tensors, HEADS, 1, read_in)
    kq, ov = expected(parts, embed, unembed)
    assert np.asarray(layer.model.kq()) == pytest.approx(kq, abs=1e-12)
    assert np.asarray(layer.model.ov()) == pytest.approx(ov, abs=1e-12)
    assert layer.left_out == ()
    (given,) = read_layers(tensors, HEADS, 1, ReadIn(embed, unembed))
    assert np.array_equal(given.model.ov(), layer.model.ov()) and given.left_out == ()


def test_without_a_read_in_layers_read_tokens(rng):
    parts = heads_of(rng, TOKEN)
    (layer,) = read_layers(as_hooked(parts))
    kq, ov = expected(parts, np.eye(TOKEN), np.eye(TOKEN)[-1:])
    assert layer.name == "blocks.0.attn"
    assert np.asarray(layer.model.kq()) == pytest.approx(kq, abs=1e-12)
    assert np.asarray(layer.model.ov()) == pytest.approx(ov, abs=1e-12)


def test_labels_of_interleaved_tokens_are_where_their_own_tokens_have_them(rng):
    parts = heads_of(rng)
    embed, unembed = rng.normal(size=(OUTER, DIM)), rng.normal(size=(1, OUTER))
    (layer,) = read_layers(as_hooked(parts), None, 1, ReadIn(embed, unembed, interleaved=True))
    kq, ov = expected(parts, np.concatenate([embed, embed[:, :1]], 1), unembed)
    assert np.asarray(layer.model.kq()) == pytest.approx(kq, abs=1e-12)
    assert np.asarray(layer.model.ov()) == pytest.approx(ov, abs=1e-12)


def layer_norm(r, gain):
    """Without its scale."""
    return gain * (r - r.mean(-1, keepdims=True))


@pytest.mark.parametrize(
    ("layout", "norm", "last"),
    [
        (as_gpt2, ("transformer.h.0.ln_1.weight", "transformer.h.0.ln_1.bias"), "ln_f.weight"),
        (as_hooked, ("blocks.0.ln1.w", "blocks.0.ln1.b"), "ln_final.w"),
        (as_hooked, ("blocks.0.ln1.w",), "ln_final.w"),  # RMSNorm, which does not centre
    ],
)
def test_gains_and_centring_of_norms_are_part_of_the_circuits(rng, layout, norm, last):
    parts = heads_of(rng)
    embed, unembed = rng.normal(size=(OUTER, TOKEN)), rng.normal(size=(1, OUTER))
    gains = rng.normal(size=(2, OUTER))
    names = [name for name in (norm[0], last)]
    names[1] = last if layout is as_hooked else f"transformer.{last}"
    tensors = layout(parts) | dict(zip(names, gains))
    tensors |= {name: np.zeros(OUTER) for name in norm[1:]}
    if len(norm) == 2 and layout is as_hooked:
        tensors["ln_final.b"] = np.zeros(OUTER)
    (layer,) = read_layers(tensors, HEADS, 1, ReadIn(embed, unembed))
    assert layer.left_out == ("the scale of norms",)
    centred = len(norm) == 2
    before = lambda r, gain: layer_norm(r, gain) if centred else gain * r
    z, z_q = rng.normal(size=(2, TOKEN))
    z_q[DIM:] = 0
    key, query = before(embed @ z, gains[0]), before(embed @ z_q, gains[0])
    for h, (q, k, v, o) in enumerate(zip(*parts)):
        score = (key @ k) @ (query @ q) / WIDTH**0.5
        assert z @ np.asarray(layer.model.kq())[h] @ z_q[:DIM] == pytest.approx(score)
        read = unembed @ before((key @ v) @ o, gains[1])
        assert np.asarray(layer.model.ov())[h] @ z == pytest.approx(read)


def test_layers_come_in_the_order_of_their_numbers_and_say_what_is_left_out(rng):
    tensors = {}
    for number in (10, 9, 2):
        tensors |= as_gpt2(heads_of(rng, OUTER), f"h.{number}.attn.")
    tensors |= {"wpe.weight": np.ones((9, OUTER)), "h.2.attn.c_attn.bias": np.ones(3 * OUTER)}
    layers = read_layers(tensors, HEADS, 1)
    assert [layer.name for layer in layers] == ["h.2.attn", "h.9.attn", "h.10.attn"]
    assert layers[0].left_out == ("biases", "positions", "what other layers write")
    assert layers[1].left_out == ("positions", "what other layers write")


def test_norms_of_unknown_place_are_named(rng):
    tensors = as_joined(heads_of(rng), "layers.0.self_attn.")
    tensors["layers.0.norm1.weight"] = np.ones(OUTER)
    assert read_layers(tensors, HEADS, 1)[0].left_out == ("norms",)


def test_other_parts_are_named_and_biases_of_the_read_out_count(rng):
    tensors = as_gpt2(heads_of(rng), "h.0.attn.") | {"h.0.attn.bias": np.ones((1, 1, 9, 9))}
    tensors |= {"read_in.weight": rng.normal(size=(OUTER, TOKEN)), "read_in.bias": np.zeros(OUTER)}
    tensors |= {"read_out.weight": rng.normal(size=(1, OUTER)), "read_out.bias": np.zeros(1)}
    left_out = lambda: read_layers(tensors, HEADS, 1, ReadIn("read_in", "read_out"))[0].left_out
    assert left_out() == ()
    tensors["read_out.bias"] = np.ones(1)
    assert left_out() == ("biases",)
    tensors |= {f"h.0.mlp.c_{part}.weight": np.ones(3) for part in ("fc", "proj")}
    assert left_out() == ("biases", "other parts (`c_fc`, `c_proj`)")


def test_biases_of_norms_are_left_out_and_named(rng):
    tensors = as_hooked(heads_of(rng)) | {"blocks.0.ln1.w": np.ones(OUTER)}
    tensors["blocks.0.ln1.b"] = np.ones(OUTER)
    assert read_layers(tensors, HEADS, 1)[0].left_out == ("biases", "the scale of norms")


@pytest.mark.parametrize(
    ("settings", "factor"),
    [
        ({"scale_attn_weights": False}, WIDTH**0.5),
        ({"use_attn_scale": False, "attn_scale": 1.0}, WIDTH**0.5),
        ({"attn_scale": 4.0}, WIDTH**0.5 / 4),
        ({"scale_attn_by_inverse_layer_idx": True}, 1 / 2),
    ],
)
def test_scores_are_scaled_as_the_config_says(rng, settings, factor):
    tensors = as_gpt2(heads_of(rng), "h.0.attn.") | as_gpt2(heads_of(rng), "h.1.attn.")
    plain = read_layers(tensors, settings={"n_head": HEADS})[1]
    scaled = read_layers(tensors, settings=settings | {"n_head": HEADS})[1]
    assert np.asarray(scaled.model.kq()) == pytest.approx(factor * np.asarray(plain.model.kq()))


def test_circuits_become_the_attention_that_has_them(rng):
    kq, ov = rng.normal(size=(2, TOKEN, DIM)), rng.normal(size=(2, 1, TOKEN))
    model = from_circuits(kq, ov)
    assert np.asarray(model.kq()) == pytest.approx(kq) and np.array_equal(model.ov(), ov)
    with pytest.raises(InputError, match=r"`kq` has the shape \(2, 4, 4\)"):
        from_circuits(kq[:, :DIM], ov)


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (lambda t: t.clear(), {}, "no layer of attention with known names"),
        (lambda t: t.pop("h.0.attn.c_proj.weight"), {}, "has no `h.0.attn.c_proj.weight`"),
        (lambda t: t.update({"h.0.attn.c_attn.weight": np.ones((5, 5))}), {}, "must be d × 3 d"),
        (lambda t: None, {"heads": None}, "`heads` is missing"),
        (lambda t: None, {"heads": 4}, "`heads` = 4"),
        (lambda t: None, {"read_in": ReadIn("nowhere", "out")}, "`unembed` = 'out'.* has the mat"),
        (
            lambda t: t.update(
                {"a.in.weight": np.ones((OUTER, 5)), "b.in.weight": np.ones((6, 5))}
            ),
            {"read_in": ReadIn("in", np.ones((1, OUTER)))},
            "`embed` = 'in' may be a.in.weight or b.in.weight",
        ),
        (
            lambda t: None,
            {"read_in": ReadIn(np.ones((OUTER + 1, 5)), np.ones((1, OUTER)))},
            "reads 6 entries .*`embed`, of shape \\(7, 5\\)",
        ),
        (lambda t: t["h.0.attn.c_attn.weight"].fill(np.inf), {}, "matrix of finite numbers"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(rng, change, options, words):
    tensors = as_gpt2(heads_of(rng), "h.0.attn.")
    change(tensors)
    with pytest.raises((InputError, FileError), match=words) as caught:
        read_layers(tensors, **({"heads": HEADS, "labels": 1} | options))
    assert "\n" not in str(caught.value)


def test_a_read_in_needs_a_read_out():
    with pytest.raises(InputError, match="`unembed` is missing"):
        ReadIn("read_in")
    with pytest.raises(InputError, match="`interleaved` = True: needs"):
        ReadIn(interleaved=True)


class Tensor:
    """As a tensor of PyTorch on another device, which NumPy cannot convert itself."""

    def __init__(self, array):
        self.array, self.shape = array, array.shape

    def detach(self):
        return self

    def cpu(self):
        return self.array

    def __array__(self, *_):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


def test_a_module_is_asked_for_its_weights_and_its_heads(rng):
    parts = heads_of(rng)

    class Module:
        config = type("Config", (), {"n_head": HEADS, "n_layer": 1})

        def state_dict(self):
            return {name: Tensor(part) for name, part in as_gpt2(parts).items()}

    weights = Weights(Module())
    assert weights.settings == {"n_head": HEADS}
    (layer,) = read_layers(weights, labels=1, settings=weights.settings)
    assert np.asarray(layer.model.kq()).shape == (HEADS, OUTER, OUTER - 1)
    with pytest.raises(InputError, match="a int: must be a module"):
        Weights(3)
