"""Files that are damaged, forged, or no files at all: one sentence, and nothing is executed."""

import json
import os
import struct
import sys
import types
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from safetensors.numpy import save, save_file

from iclflow.checkpoints import load_model, save_model
from iclflow.cli import main
from iclflow.files import FileError, seal, sha256
from iclflow.flows import Checkpoint, CheckpointError
from iclflow.flows._checkpoint import Snapshot
from iclflow.models import (
    Attention,
    AttentionStack,
    Diagonal,
    Merged,
    Separate,
    model_arrays,
)
from iclflow.sweeps import load_trajectory
from iclflow.sweeps._trajectories import pack_trajectories
from iclflow.tensors import TensorFile
from iclflow.trajectory import Trajectory
from state_dicts import stacked

NESTED = "[" * 100_000
STRUCTURED = Attention(Diagonal(jnp.asarray([0.5, -0.5]), jnp.asarray([1.0, -1.0]), 3))


def header_of(path: Path) -> tuple[dict, bytes]:
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def write_header(path: Path, header, data: bytes) -> None:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def small_run(points: int = 3) -> Trajectory:
    model = Attention(Separate.of(jnp.ones(2), jnp.ones((2, 3, 1)), jnp.ones((2, 3, 1))))
    models = jax.tree.map(lambda leaf: np.asarray(leaf)[None].repeat(points, 0), model)
    return Trajectory(np.arange(points, dtype=float), np.ones(points), models)


# Any file -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["model.safetensors", "model.pth"])
def test_what_has_no_end_is_never_opened(tmp_path, capsys, name):
    path = tmp_path / name
    for make, words in (
        (lambda: os.mkfifo(path), "is a device or a pipe"),
        (lambda: path.symlink_to("/dev/zero"), "is a device or a pipe"),
        (lambda: path.symlink_to(tmp_path / "nowhere"), "does not exist"),
    ):
        make()
        assert main(["inspect", str(path)]) == 2
        err = capsys.readouterr().err
        assert words in err and err.count("\n") == 1
        path.unlink()


@pytest.mark.parametrize("kind", ["F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "C64"])
def test_numbers_of_kinds_that_are_not_weights_are_refused(tmp_path, capsys, kind):
    path = tmp_path / "eight.safetensors"
    names, size = [f"{n}_proj.weight" for n in "qkvo"], 36 * (8 if kind == "C64" else 1)
    size = size // 2 if kind == "F4" else size
    header = {
        name: {"dtype": kind, "shape": [6, 6], "data_offsets": [i * size, (i + 1) * size]}
        for i, name in enumerate(names)
    }
    write_header(path, header, bytes(4 * size))
    assert main(["inspect", str(path), "--heads", "1"]) == 2
    err = capsys.readouterr().err
    assert f"holds numbers of kind {kind}: must be one of F64" in err and err.count("\n") == 1


def test_half_precision_of_both_kinds_is_read(tmp_path):
    path, plain = tmp_path / "half.safetensors", stacked(width=12)
    wide = load_model_of(path, plain).kq()
    for dtype, digits in ((np.float16, 2e-3), (jnp.bfloat16, 2e-2)):
        narrow = load_model_of(path, {k: v.astype(dtype) for k, v in plain.items()}).kq()
        assert np.max(np.abs(narrow - wide)) < digits and narrow.dtype == jnp.float64


def load_model_of(path: Path, tensors):
    save_file(tensors, path)
    return load_model(path, heads=3)


def test_tensors_that_are_not_asked_for_are_not_read(tmp_path):
    path = tmp_path / "large.safetensors"
    save_file(stacked(width=12), path)
    header, data = header_of(path)
    header["scale"] = {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [len(data), len(data) + 4]}
    write_header(path, header, data + bytes(4))
    assert load_model(path, heads=3).kq().shape == (3, 6, 5)


# Our own models -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "change", "words"),
    [
        (STRUCTURED, {"format": 2}, "in format 2: must be one of"),
        (STRUCTURED, {"class": "Nobody"}, "holds a 'Nobody' in format 1"),
        (STRUCTURED, {"class": ["MergedKQ"]}, "holds a ['MergedKQ'] in format 1"),
        (STRUCTURED, {"class": "MergedKQ"}, "has no `value`, which every Merged has"),
        (STRUCTURED, {"dim": -3}, "do not fit together"),
        (STRUCTURED, {"dim": 0}, "do not fit together"),
        (STRUCTURED, {"dim": 10**9}, "has `dim` = 1000000000, which no"),
        (STRUCTURED, {"dim": True}, "has `dim` = True, which no"),
        (STRUCTURED, {"dim": None}, "has `dim` = None, which no"),
        (STRUCTURED, {"activation": "relu"}, "has `activation` = 'relu', which no"),
        (STRUCTURED, {"self_attention": "no"}, "has `self_attention` = 'no', which no"),
        (STRUCTURED, {"__class__": "x"}, "has `__class__`, which is none of the fields"),
        (STRUCTURED, {"omega": [1.0]}, "has `omega`, which is none of the fields"),
        (AttentionStack.init(jr.key(0), 2, 1, 1), {"depth": 10**12}, "has `depth` = 1000000000000"),
        (AttentionStack.init(jr.key(0), 2, 1, 2), {"depth": 3}, "do not fit together"),
        (
            Attention.spectral(jr.key(0), [[0], [1]], 2),
            {"coordinates": [[0], "1"]},
            "has `coordinates` = ((0,), '1'), which no",
        ),
        (
            Attention.spectral(jr.key(0), [[0], [1]], 2),
            {"coordinates": [[0], [7]]},
            "do not fit together",
        ),
    ],
)
def test_forged_metadata_of_a_model_are_refused(tmp_path, model, change, words):
    path = tmp_path / "model.safetensors"
    save_model(model, path)
    header, data = header_of(path)
    about = json.loads(header["__metadata__"]["iclflow"]) | change
    write_header(path, header | {"__metadata__": {"iclflow": json.dumps(about)}}, data)
    with pytest.raises(ValueError) as found:
        load_model(path)
    assert words in str(found.value) and "\n" not in str(found.value)


@pytest.mark.parametrize("text", [NESTED, '{"a":' * 50_000, "3", "null", "[]", "nothing", '"x"'])
def test_metadata_that_are_no_plain_object_are_refused(tmp_path, capsys, text):
    path = tmp_path / "model.safetensors"
    path.write_bytes(save({"omega": np.ones(2)}, metadata={"iclflow": text}))
    assert main(["inspect", str(path)]) == 2
    err = capsys.readouterr().err
    assert "metadata that" in err and err.count("\n") == 1
    with pytest.raises(CheckpointError, match="is damaged"):
        Checkpoint(path).load("me")


@pytest.mark.parametrize(
    ("field", "array"),
    [
        ("key_query", np.ones((2, 3, 4))),
        ("key_query", np.ones((3, 3, 3))),
        ("key_query", np.ones((2, 3))),
        ("key_query", np.ones(())),
        ("value", np.ones((2, 1))),
        ("value", np.ones((0, 1, 1))),
        ("value", np.ones((2, 1, 1), np.int64)),
        ("value", np.ones((2, 1, 1), np.complex64)),
        ("w", np.ones(2)),
        ("key_query", None),
    ],
)
def test_weights_that_do_not_fit_are_refused(tmp_path, capsys, field, array):
    path = tmp_path / "model.safetensors"
    save_model(Attention(Merged.of(jnp.ones(2), jnp.ones((2, 3, 3)))), path)
    header, _ = header_of(path)
    arrays = {"value": np.ones((2, 1, 1)), "key_query": np.ones((2, 3, 3)), field: array}
    kept = {name: value for name, value in arrays.items() if value is not None}
    path.write_bytes(save(kept, metadata=header["__metadata__"]))
    assert main(["inspect", str(path)]) == 2
    err = capsys.readouterr().err
    # Sizes that fit no head are found when all weights are put together.
    assert f"`{field}`" in err or "do not fit together" in err
    assert err.count("\n") == 1


# Runs -----------------------------------------------------------------------------------------


def forge(folder: Path, **change) -> None:
    """Writes a manifest that says something else, with a hash that fits."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest = {k: v for k, v in (manifest | change).items() if v is not ... and k != "hash"}
    (folder / "manifest.json").write_text(seal(manifest))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": None}, "has `model` = None"),
        ({"model": ...}, "has `model` = None"),
        ({"model": {}}, "holds a None: pass that class"),
        ({"model": {"class": "SeparateKQ", "rank": 3}}, "has `rank`, which is none of the fields"),
        ({"model": {"class": "MergedKQ"}}, "has no `key_query`, which every Merged has"),
        ({"model": {"class": {"a": 1}}}, "holds a {'a': 1}: pass that class"),
        ({"clock": "hours"}, "`clock` = 'hours'"),
        ({"clock": ["time"]}, "has `clock` = ['time']"),
        ({"result": "won"}, "`result` = 'won'"),
        ({"result": 3}, "has `result` = 3"),
        ({"statistics": [1]}, "has `statistics` = [1]"),
        ({"files": [1]}, "is not the manifest of a run"),
        ({"files": {}}, "does not match its hash"),
        ({"format": NESTED[:100]}, "has format '[[["),
    ],
)
def test_forged_manifests_are_refused(tmp_path, change, words):
    small_run().save(tmp_path)
    assert len(Trajectory.load(tmp_path)) == 3
    forge(tmp_path, **change)
    with pytest.raises(ValueError) as found:
        Trajectory.load(tmp_path)
    assert words in str(found.value) and "\n" not in str(found.value)


@pytest.mark.parametrize("text", [NESTED, "[]", "3", "", "\x00", '{"format": 1}'])
def test_manifests_that_are_no_plain_object_are_refused(tmp_path, capsys, text):
    small_run().save(tmp_path)
    (tmp_path / "manifest.json").write_text(text)
    assert main(["inspect", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert "manifest.json`" in err and err.count("\n") == 1


@pytest.mark.parametrize(
    "change",
    [
        {"times": np.ones(4)},
        {"times": np.ones((3, 1))},
        {"losses": None},
        {"model.K": np.ones((2, 2, 3, 1))},
        {"model.K": np.ones((3, 2, 4, 1))},
        {"model.value": np.ones((3, 2, 1, 1), np.int32)},
        {"model.w": np.ones((3, 2))},
        {"v": np.ones((3, 2))},
    ],
)
def test_numbers_that_are_no_run_are_refused(tmp_path, change):
    run = small_run()
    run.save(tmp_path)
    whole = {"times": run.times, "losses": run.losses}
    whole |= {f"model.{k}": array for k, array in model_arrays(run.models).items()}
    arrays = {k: v for k, v in (whole | change).items() if v is not None}
    content = save(arrays)
    (tmp_path / "trajectory.safetensors").write_bytes(content)
    forge(tmp_path, files={"trajectory.safetensors": sha256(content)})
    with pytest.raises(ValueError, match=r"trajectory.safetensors` has .*\.$"):
        Trajectory.load(tmp_path)


def test_a_run_with_a_pipe_for_a_file_is_refused(tmp_path):
    small_run().save(tmp_path)
    (tmp_path / "trajectory.safetensors").unlink()
    os.mkfifo(tmp_path / "trajectory.safetensors")
    with pytest.raises(ValueError, match="is a device or a pipe"):
        Trajectory.load(tmp_path)


@pytest.mark.parametrize(
    ("about", "arrays", "words"),
    [
        ({"results": ["finished"]}, {}, "does not say how its runs ended"),
        ({"statistics": None}, {}, "does not say how its runs ended"),
        ({"model": {"class": "Nobody"}}, {}, "holds a 'Nobody'"),
        ({"clock": None}, {}, "has `clock` = None"),
        ({}, {"counts": np.asarray([3, -1])}, "does not say where its runs begin"),
        ({}, {"runs": np.asarray([0.0, 1.0])}, "does not say where its runs begin"),
        ({}, {"counts": None}, "has no `counts`"),
        ({}, {"losses": None}, "has no `losses`"),
        ({}, {"counts": np.asarray([2, 7])}, "must begin with|of one length|cannot be read|points"),
    ],
)
def test_forged_trajectories_of_a_sweep_are_refused(tmp_path, about, arrays, words):
    folder = tmp_path / "trajectories"
    folder.mkdir()
    path = folder / "0000.safetensors"
    path.write_bytes(pack_trajectories([0, 1], [small_run(), small_run()]))
    assert len(load_trajectory(tmp_path, 1)) == 3
    file = TensorFile(path)
    kept = {k: v for k, v in (dict(file) | arrays).items() if v is not None}
    told = {k: v for k, v in ((file.about() or {}) | about).items()}
    path.write_bytes(save(kept, metadata={"iclflow": json.dumps(told)}))
    with pytest.raises(FileError, match=words):
        load_trajectory(tmp_path, 1)


def test_a_checkpoint_that_holds_something_else_is_refused_like_a_damaged_one(tmp_path):
    checkpoint = Checkpoint(tmp_path / "checkpoint.safetensors")
    assert checkpoint.load("me") is None
    checkpoint.save(Snapshot({"state.0": np.ones(3)}, {"seen": 1}))
    found = checkpoint.load("me")
    assert found is not None
    with pytest.raises(CheckpointError, match="does not hold what this run needs: remove it"):
        with checkpoint.restoring():
            found.about["seconds"]


# PyTorch --------------------------------------------------------------------------------------


class FakeTensor:
    """As much of a tensor as is asked about before its numbers are."""

    def __init__(self, shape, storage, layout="strided", device="cpu"):
        self.shape, self.layout, self.is_quantized = shape, layout, False
        self.device, self.dtype = types.SimpleNamespace(type=device), FakeDtype()
        self._storage = storage

    def numel(self):
        return int(np.prod(self.shape))

    def element_size(self):
        return 4

    def untyped_storage(self):
        return types.SimpleNamespace(nbytes=lambda: self._storage)

    def detach(self):
        return self

    def to(self, _):
        return self

    def numpy(self):
        assert self.numel() * 4 <= self._storage, "numbers that are not there were asked for"
        return np.ones(self.shape, np.float32)


class FakeDtype:
    is_floating_point = True


def with_torch(monkeypatch, version: str, content=None):
    """Puts a module that calls itself PyTorch where it is imported from."""
    loads = []

    def load(path, **options):
        loads.append(options)
        return content

    fake = types.ModuleType("torch")
    vars(fake).update(
        __version__=version, load=load, Tensor=FakeTensor, strided="strided",
        float64=object(), float32=object(),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", fake)
    return loads


def archive(path: Path, compression=zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("archive/data.pkl", bytes(10_000))
    return path


@pytest.mark.parametrize("version", ["2.5.1", "2.5.1+cpu", "1.13.0", "0.4", "2.0.0a0+git", "odd"])
def test_a_loader_that_can_be_made_to_execute_code_is_not_called(
    tmp_path, monkeypatch, capsys, version
):
    loads = with_torch(monkeypatch, version)
    assert main(["inspect", str(archive(tmp_path / "trained.pth"))]) == 2
    err = capsys.readouterr().err
    assert f"PyTorch {version} is installed" in err and "install 2.6 or newer" in err
    assert err.count("\n") == 1 and loads == []


@pytest.mark.parametrize("version", ["2.6.0", "2.10.0", "2.6.0+cpu", "3.0"])
def test_newer_loaders_are_asked_for_weights_alone(tmp_path, monkeypatch, version):
    tensors = {f"{n}_proj.weight": FakeTensor((6, 6), 144) for n in "qkv"}
    tensors |= {"o_proj.weight": FakeTensor((1, 6), 24)}
    loads = with_torch(monkeypatch, version, {"state_dict": tensors, "config": {"n_heads": 2}})
    model = load_model(archive(tmp_path / "trained.pth"))
    assert model.kq().shape == (2, 6, 5)  # as the file says
    assert loads == [{"map_location": "cpu", "weights_only": True}]


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (FakeTensor((100_000, 100_000), 4), r"has shape \(100000, 100000\) and fewer numbers"),
        (FakeTensor((6, 6), 144, layout="sparse"), "is sparse, quantised or without numbers"),
        (FakeTensor((6, 6), 144, device="meta"), "is sparse, quantised or without numbers"),
    ],
)
def test_tensors_that_claim_more_than_they_store_are_never_made(
    tmp_path, monkeypatch, tensor, words
):
    tensors = {f"{n}_proj.weight": tensor for n in "qkvo"}
    with_torch(monkeypatch, "2.6.0", tensors)
    with pytest.raises(ValueError, match=words):
        load_model(archive(tmp_path / "trained.pth"), heads=1)


def test_archives_that_grow_when_they_are_read_are_refused(tmp_path, monkeypatch):
    loads = with_torch(monkeypatch, "2.6.0", {})
    with pytest.raises(ValueError, match="holds more than its own size, compressed"):
        load_model(archive(tmp_path / "bomb.pth", zipfile.ZIP_DEFLATED))
    for content in (b"", b"no archive", b"\x80\x02}q\x00."):
        (tmp_path / "old.pth").write_bytes(content)
        with pytest.raises(ValueError, match="is not the archive that `torch.save` writes"):
            load_model(tmp_path / "old.pth")
    assert loads == []


# Commands -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_command_that_reads_a_run_says_what_is_wrong_with_it(tmp_path, capsys, sketched):
    config = tmp_path / "stairs.toml"
    config.write_text(
        """name = "stairs"
        [task]
        kind = "linear_regression"
        eigenvalues = [0.6, 0.4]
        context = 9
        [model]
        kind = "separate"
        heads = 1
        [flow]
        kind = "gradient_descent"
        learning_rate = 0.01
        steps = 2"""
    )
    run = tmp_path / "run"
    assert main(["run", str(config), "--out", str(run)]) == 0
    capsys.readouterr()
    whole = (run / "manifest.json").read_text()
    commands = (["inspect", run], ["show", run], ["run", config, "--out", run])
    for change in ({"result": "won"}, {"clock": 3}, {"model": {"class": "Nobody"}}):
        forge(run, **change)
        for command in commands:
            code = main([str(word) for word in command])
            err = capsys.readouterr().err
            assert code == 2 and err.count("\n") == 1 and err.startswith("iclflow: `")
        (run / "manifest.json").write_text(whole)


@pytest.mark.parametrize("value", [-1, 2**32, 10**30])
def test_seeds_that_no_key_can_be_made_of_are_refused(tmp_path, capsys, value):
    path = tmp_path / "model.safetensors"
    save_model(STRUCTURED, path)
    assert main(["inspect", str(path), f"--seed={value}"]) == 2
    err = capsys.readouterr().err
    assert f"`--seed` = {value}: must lie between 0 and " in err and err.count("\n") == 1


# Many at once ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_damage_at_random_is_an_error_in_one_sentence_or_none(tmp_path, seed):
    """Bits flipped, files cut short, entries of the header changed: forty cases each."""
    generator = np.random.default_rng(seed)
    path = tmp_path / "model.safetensors"
    save_model(STRUCTURED, path)
    whole, refused = path.read_bytes(), 0
    for case in range(40):
        content = bytearray(whole)
        if case % 2:
            content = content[: generator.integers(len(content))]
        else:
            for place in generator.integers(0, len(content), 3):
                content[place] ^= 1 << int(generator.integers(8))
        path.write_bytes(bytes(content))
        try:
            load_model(path)
        except ValueError as error:
            refused += 1
            assert "\n" not in str(error) and str(path) in str(error)
    assert refused >= 25
