"""Files of versions before 0.2, which had a class for each kind of attention."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save, save_file

from iclflow.checkpoints import load_model
from iclflow.files import seal, sha256
from iclflow.models import is_known_model, known_models
from iclflow.models._first_build import FIRST_BUILD
from iclflow.tasks import Sequences
from iclflow.tensors import OWN
from iclflow.trajectory import Result, Trajectory

# Two heads, three inputs, one label or two; keys and values of width 4; keys of rank 2.
_LINEAR = {"activation": "linear", "normaliser": "context", "self_attention": True}
_SOFTMAX = {"activation": "softmax", "normaliser": "context", "self_attention": False}
_BLOCKS = ((0, 1), (2,))
_SPECTRAL = {"coordinates": _BLOCKS, "dim": 3, "width": 3, **_SOFTMAX}


def _merged(v, U):
    return np.pad(v[:, None, None], ((0, 0), (0, 0), (3, 0))), np.pad(U, _ROW)


def _separate(v, K, Q):
    return _merged(v, K @ np.swapaxes(Q, 1, 2))


def _structured(omega, mu):
    mu = mu.reshape(2, -1)
    labels = mu.shape[1]
    ov = np.stack([np.hstack([np.zeros((labels, 3)), np.diag(row)]) for row in mu])
    kq = [np.diag(np.broadcast_to(row, 3)) for row in omega]
    return ov, np.pad(np.stack(kq), ((0, 0), (0, labels), (0, 0)))


def _factored(K, Q, V, O):  # noqa: E741
    O = O.reshape(2, -1, 4)  # noqa: E741
    return O @ V, np.swapaxes(K, 1, 2) @ Q[..., :3] / 2


def _blind_factored(K, Q, V, O):  # noqa: E741
    ov, kq = _factored(K, Q, V, O)
    return np.pad(ov, ((0, 0), (0, 0), (3, 0))), np.pad(kq, ((0, 0), (0, 2), (0, 0)))


def _spectral(omega, mu):
    return _structured(omega[:, [0, 0, 1]], mu)


_ROW = ((0, 0), (0, 1), (0, 0))
# The class; its weights and settings as they stand in a file; its circuits now; and what its heads
# read and attend to, from these weights.
FILES = {
    "MergedKQ": ({"v": (2,), "U": (2, 3, 3)}, _LINEAR, "Merged", _merged),
    "FullMergedKQ": (
        {"value": (2, 4), "key_query": (2, 4, 3)},
        _LINEAR,
        "Merged",
        lambda value, key_query: (value[:, None], key_query),
    ),
    "MultiMergedKQ": (
        {"value": (2, 2, 5), "key_query": (2, 5, 3)},
        _SOFTMAX,
        "Merged",
        lambda value, key_query: (value, key_query),
    ),
    "SeparateKQ": ({"v": (2,), "K": (2, 3, 2), "Q": (2, 3, 2)}, _LINEAR, "Separate", _separate),
    "FullSeparateKQ": (
        {"value": (2, 4), "key": (2, 4, 2), "query": (2, 3, 2)},
        _LINEAR,
        "Separate",
        lambda value, key, query: (value[:, None], key @ np.swapaxes(query, 1, 2)),
    ),
    "StructuredAttention": (
        {"omega": (2, 3), "mu": (2,)},
        {"dim": 3, **_SOFTMAX},
        "Diagonal",
        _structured,
    ),
    "MultiStructured": (
        {"omega": (2, 3), "mu": (2, 2)},
        {"dim": 3, **_SOFTMAX},
        "Diagonal",
        _structured,
    ),
    "FactoredAttention": (
        dict.fromkeys("KQV", (2, 4, 4)) | {"O": (2, 4)},
        _SOFTMAX,
        "Factored",
        _factored,
    ),
    "MultiFactored": (
        dict.fromkeys("KQV", (2, 4, 5)) | {"O": (2, 2, 4)},
        _SOFTMAX,
        "Factored",
        _factored,
    ),
    "BlindFactored": (
        {"K": (2, 4, 3), "Q": (2, 4, 3), "V": (2, 4, 2), "O": (2, 2, 4)},
        _SOFTMAX,
        "Factored",
        _blind_factored,
    ),
    "SpectralAttention": (
        dict.fromkeys("KQVO", (2, 2)),
        _SPECTRAL,
        "Spectral",
        lambda K, Q, V, O: _spectral(K * Q / (3**0.5 * np.array([2, 1])), O * V),  # noqa: E741
    ),
    "BalancedSpectral": (
        {"attend": (2, 2), "read": (2, 2)},
        {"signs": None, **_SPECTRAL},
        "BalancedSpectral",
        lambda attend, read: _spectral(attend**2 / (2 * 3**0.5 * np.array([2, 1])), read**2 / 2),
    ),
}


def weights_of(kind: str, points: int = 3) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=(points, *shape)) for name, shape in FILES[kind][0].items()}


def write_old_run(folder: Path, kind: str) -> None:
    """A run of three points, as the first build wrote it."""
    arrays = {"times": np.arange(3.0), "losses": np.array([1.0, 0.7, 0.2])}
    arrays |= {f"model.{name}": array for name, array in weights_of(kind).items()}
    data = save(arrays)
    (folder / "trajectory.safetensors").write_bytes(data)
    manifest = {
        "format": 1,
        "model": {"class": kind, **FILES[kind][1]},
        "clock": "time",
        "result": "converged",
        "statistics": {},
        "loss": 0.2,
        "files": {"trajectory.safetensors": sha256(data)},
    }
    (folder / "manifest.json").write_text(seal(manifest))


def sequences(labels: int) -> Sequences:
    rng = np.random.default_rng(1)
    shapes = (5, 6, 3), (5, 6, labels), (5, 3), (5, labels)
    parts = (jnp.asarray(rng.normal(size=shape)) for shape in shapes)
    return Sequences(*parts, length=jnp.full(5, 6.0))


def attention_by_hand(ov, kq, settings, drawn) -> np.ndarray:
    """The predictions of heads with these circuits."""
    x, y, query = map(np.asarray, (drawn.x, drawn.y, drawn.x_query))
    tokens = np.concatenate([x, y], -1)
    if settings["self_attention"]:
        last = np.pad(query, ((0, 0), (0, y.shape[-1])))[:, None]
        tokens = np.concatenate([tokens, last], 1)
    scores = np.einsum("pna,hab,pb->phn", tokens, kq, query)
    weights = scores / 6
    if settings["activation"] == "softmax":
        weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    return np.einsum("phn,hia,pna->pi", weights, ov, tokens)


def check(model, kind: str, point: int) -> None:
    """That a model is the one of the file."""
    _, settings, circuits, by_hand = FILES[kind]
    ov, kq = by_hand(**{name: array[point] for name, array in weights_of(kind).items()})
    assert type(model.circuits).__name__ == circuits
    assert model.labels == ov.shape[1]
    blind = kind not in ("FullMergedKQ", "FullSeparateKQ", "MultiMergedKQ", "MultiFactored")
    assert model.blind == (blind and kind != "FactoredAttention")
    drawn = sequences(model.labels)
    expected = attention_by_hand(ov, kq, settings, drawn)
    assert np.allclose(model.predict(drawn), expected, rtol=1e-10, atol=1e-12)
    assert {name: getattr(model, name) for name in _LINEAR} == {
        name: settings[name] for name in _LINEAR
    }


def test_every_class_of_the_first_build_is_tried():
    assert set(FILES) == set(FIRST_BUILD)
    assert all(map(is_known_model, FILES)) and not set(FILES) & set(known_models())


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("kind", FILES)
def test_a_model_in_an_old_file_predicts_what_it_did(kind, tmp_path):
    about = {"format": 1, "class": kind, **FILES[kind][1]}
    arrays = {name: array[0].copy() for name, array in weights_of(kind).items()}
    save_file(arrays, tmp_path / "old.safetensors", metadata={OWN: json.dumps(about)})
    check(load_model(tmp_path / "old.safetensors"), kind, 0)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("kind", FILES)
def test_an_old_run_opens_with_the_models_that_it_had(kind, tmp_path):
    write_old_run(tmp_path, kind)
    run = Trajectory.load(tmp_path)
    assert len(run) == 3 and run.result is Result.converged
    for point in range(3):
        check(jax.tree.map(jnp.asarray, run.at(point)), kind, point)
    # Saved again, it is a run of today.
    run.save(tmp_path / "again")
    again = Trajectory.load(tmp_path / "again")
    assert jax.tree.structure(again.models) == jax.tree.structure(run.models)
    assert jax.tree.all(jax.tree.map(np.array_equal, again.models, run.models))


@pytest.mark.parametrize("kind", FILES)
def test_settings_that_an_old_file_does_not_state_have_their_defaults(kind, tmp_path):
    stated = {name: value for name, value in FILES[kind][1].items() if name not in _LINEAR}
    arrays = {name: array[0].copy() for name, array in weights_of(kind).items()}
    about = {OWN: json.dumps({"format": 1, "class": kind, **stated})}
    save_file(arrays, tmp_path / "old.safetensors", metadata=about)
    check(load_model(tmp_path / "old.safetensors"), kind, 0)


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        ("MergedKQ", {"v": (2, 2)}, "has `value` of shape"),
        ("FullSeparateKQ", {"query": (2, 4, 2)}, "has `.*` of shape|do not fit together"),
        ("StructuredAttention", {"mu": (3,)}, "has `mu` of shape"),
    ],
)
def test_weights_that_no_such_model_had_are_refused(kind, change, words, tmp_path):
    about = {"format": 1, "class": kind, **FILES[kind][1]}
    shapes = FILES[kind][0] | change
    arrays = {name: np.ones(shape) for name, shape in shapes.items()}
    save_file(arrays, tmp_path / "old.safetensors", metadata={OWN: json.dumps(about)})
    with pytest.raises(ValueError, match=words):
        load_model(tmp_path / "old.safetensors")
