"""`iclflow inspect`: what it says of state dicts, of models of ours, and of what is neither."""

import hashlib
import inspect
import json
import re
from typing import get_args

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from safetensors.numpy import save_file

from iclflow.analysis import Role
from iclflow.checkpoints import list_checkpoints, load_layers, load_model, save_model
from iclflow.cli import _inspect, main
from iclflow.cli._inspect_series import print_series
from iclflow.config import to_toml
from iclflow.files import MARKER
from iclflow.models import Attention, AttentionStack, Diagonal, Separate, TwoLayerLinear
from iclflow.tasks import isotropic
from iclflow.theory import kernel_regression_risk
from state_dicts import DIM, MU, OMEGA, stacked, two_labels
from test_docs import ROOT, blocks

# As many as the documentation takes: then both share what is compiled.
SEQUENCES = 2000


def inspected(capsys, *arguments):
    code = main(["inspect", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def single_precision(tensors):
    return {name: matrix.astype(np.float32) for name, matrix in tensors.items()}


def at_random(init, scale: float):
    """A model with random weights, drawn by NumPy: nothing is compiled for it."""
    generator, shapes = np.random.default_rng(0), jax.eval_shape(init, jr.key(0))
    return jax.tree.map(lambda w: jnp.asarray(scale * generator.normal(size=w.shape)), shapes)


def test_inspect_tells_roles_and_algorithm_of_a_foreign_state_dict(tmp_path, capsys):
    path = tmp_path / "trained.safetensors"
    save_file(single_precision(stacked(width=12)), path)
    code, out, _ = inspected(capsys, path, "--heads", 3, "--sequences", SEQUENCES, "--json")
    found = json.loads(out)
    label = found["labels"][0]
    assert code == 0 and found["context"] == [40]
    assert (found["heads"], found["width"], found["dim"], found["outputs"]) == (3, 12, DIM, 1)
    assert [head["role"] for head in label["heads"]] == ["positive", "negative", "dummy"]
    assert label["algorithm"].startswith("one debiased gradient step, η = 0.8") and label["known"]
    # The exact loss of this pair is .243244; the dummy head hardly changes it.
    assert found["loss_kind"] == "sampled"
    assert abs(found["loss"] - 0.24324) < 4 * found["loss_standard_error"] + 1e-4


def test_inspect_asks_for_the_heads_and_says_how_it_divided_the_rows(tmp_path, capsys):
    path = tmp_path / "trained.safetensors"
    save_file(single_precision(stacked(width=12)), path)
    code, out, err = inspected(capsys, path)
    assert code == 2 and out == "" and "36 rows of queries" in err and "`--heads` is missing" in err
    assert "q_proj.weight` of " in err and "of shape (36, 6)" in err and err.count("\n") == 1
    code, out, _ = inspected(capsys, path, "--heads", 3, "--sequences", SEQUENCES)
    assert code == 0 and "3 heads of width 12 (scores are divided by √12)" in out
    assert "tokens of 5 inputs and 1 label\n" in out and " 0.1300 " in out.replace(
        "0.13 ", "0.1300 "
    )
    # As many rows as a token has entries may be one head, or two of half the width.
    save_file(single_precision(stacked(OMEGA[:1], MU[:1])), path)
    code, out, err = inspected(capsys, path)
    assert code == 2 and out == "" and "must be one of 1, 2, 3, 6." in err
    code, _, err = inspected(capsys, path, "--heads", 1, "--eigenvalues", 1, 2)
    assert code == 2 and "`--eigenvalues` has 2 numbers: must have 5" in err


@pytest.mark.slow
def test_inspect_prints_the_exact_loss_where_there_is_one_and_draws_the_circuits(tmp_path, capsys):
    path = tmp_path / "one.safetensors"
    model = Attention(Diagonal(jnp.asarray([0.518]), jnp.asarray([1.497]), DIM))
    save_model(model, path)
    code, out, _ = inspected(capsys, path, "--sequences", SEQUENCES, "--out", tmp_path / "picture")
    assert code == 0 and "kernel regression" in out and "positive" in out and "ω: attention" in out
    predicted = kernel_regression_risk(isotropic(DIM, 40, 0.1), 0.518, mu=1.497)
    assert f"loss {float(predicted):.6g} (exact) at context 40, noise 0.1" in out
    drawn = {p.name for p in (tmp_path / "picture").iterdir()}
    assert drawn == {"heads.pdf", "heads.png", MARKER}


def test_heads_of_linear_attention_are_named_by_their_components(tmp_path, capsys):
    path = tmp_path / "stairs.safetensors"
    # The second head works on the axis with the largest variance, the first on no single one.
    axes = np.asarray([[0.0, 1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0, 0.0], np.zeros(5)])
    save_model(
        Attention(
            Separate.of(jnp.ones(3), jnp.asarray(axes)[..., None], jnp.asarray(axes)[..., None])
        ),
        path,
    )
    flags = ("--eigenvalues", 0.1, 0.3, 0.9, 0.2, 0.3, "--sequences", SEQUENCES)
    code, out, _ = inspected(capsys, path, *flags, "--json")
    found = json.loads(out)
    assert code == 0 and found["roles"] == ["components 2, 3", "component 1", "idle"]
    assert [head["role"] for head in found["labels"][0]["heads"]] == found["roles"]
    # Its keys and queries have a rank, but no width that scores are divided by.
    assert found["width"] is None


def test_weights_that_do_nothing_known_get_no_name(tmp_path, capsys):
    # Of the shapes of a layer that is looked at above.
    generator, path = np.random.default_rng(0), tmp_path / "random.safetensors"
    shapes = {name: matrix.shape for name, matrix in stacked(width=12).items()}
    tensors = {name: generator.normal(size=shape) for name, shape in shapes.items()}
    save_file(single_precision(tensors), path)
    code, out, _ = inspected(capsys, path, "--heads", 3, "--sequences", SEQUENCES)
    assert code == 0 and "none of the known estimators; nearest: " in out
    assert "unstructured" in out and "e+" not in out


def test_heads_of_several_labels_are_shown_without_their_task(tmp_path, capsys):
    path = tmp_path / "two.safetensors"
    save_file(two_labels(), path)
    code, out, _ = inspected(capsys, path, "--heads", 2)
    assert code == 0 and "the file does not say which inputs each of the 2 labels depends on" in out
    assert "label 2" in out and "algorithm  " not in out and "loss 0" not in out
    code, _, err = inspected(capsys, path, "--heads", 2, "--noise", 0.1)
    assert code == 2 and "`--noise` = 0.1" in err and "folder of its run" in err


@pytest.mark.parametrize(
    "make",
    [
        lambda: at_random(lambda key: AttentionStack.init(key, DIM, 1, 2), 0.3),
        lambda: TwoLayerLinear.from_attention(
            at_random(lambda key: Attention.merged(key, DIM, 2), 0.5)
        ),
    ],
)
def test_models_without_circuits_are_judged_by_their_predictions(tmp_path, capsys, make):
    path = tmp_path / "model.safetensors"
    save_model(make(), path)
    code, out, _ = inspected(capsys, path, "--sequences", SEQUENCES)
    assert code == 0 and "it has no circuits to show" in out and "algorithm   " in out
    code, _, err = inspected(capsys, path, "--out", tmp_path / "picture")
    assert code == 2 and "has no circuits to draw" in err
    assert not (tmp_path / "picture").exists()


@pytest.mark.slow
def test_a_run_is_judged_on_its_own_task_with_flags_put_over_it(tmp_path, capsys, sketched):
    mix = [[0.6, -0.8], [0.8, 0.6]]
    text = f"""name = "two"
        [task]
        kind = "multi_task"
        coordinates = [[0, 1], [1, 2]]
        context = 6
        noise = 0.1
        output_rotation = {mix}
        [model]
        kind = "multi_merged"
        heads = 2
        [risk]
        kind = "sampled"
        batch = 8
        [flow]
        kind = "adam"
        learning_rate = 0.01
        steps = 2"""
    (tmp_path / "two.toml").write_text(text)
    run = tmp_path / "run"
    assert main(["run", str(tmp_path / "two.toml"), "--out", str(run)]) == 0
    capsys.readouterr()
    code, out, _ = inspected(capsys, run, "--context", 9, "--sequences", 100, "--json")
    found = json.loads(out)
    assert code == 0 and found["context"] == [9] and found["noise"] == [0.1, 0.1]
    assert len(found["labels"]) == 2 and np.shape(found["shares"]) == (2, 2)
    for arguments, words in (
        (("--heads", 3), "`--heads` = 3: "),
        (("--context", 0), "`--context` = 0: "),
        (("--eigenvalues", 1, 1, 1), "`--eigenvalues` is not a setting"),
    ):
        code, _, err = inspected(capsys, run, *arguments)
        assert code == 2 and words in err and err.count("\n") == 1


@pytest.mark.slow
def test_inspect_reads_a_pytorch_file_through_the_loader_for_weights(tmp_path, capsys):
    torch = pytest.importorskip("torch")
    path = tmp_path / "trained.pth"
    weights = single_precision(stacked(width=12))
    torch.save({"model": {k: torch.tensor(v) for k, v in weights.items()}}, path)
    code, out, _ = inspected(capsys, path, "--heads", 3, "--sequences", SEQUENCES, "--json")
    assert code == 0 and json.loads(out)["model"] == "Factored attention"
    path.write_bytes(b"no such thing")
    code, _, err = inspected(capsys, path)
    assert code == 2 and "cannot be read as weights alone" in err


def test_the_layer_of_the_documentation_is_read_as_it_predicts(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    (program,) = blocks("docs/inspect.md", "py")
    space = {"__name__": "layer"}
    exec(program.source, space)
    batch = isotropic(DIM, 12, 0.1).sample(jr.key(0), 6)
    given = (torch.tensor(np.asarray(part)) for part in (batch.x, batch.y[..., 0], batch.x_query))
    expected = space["layer"].double()(*given).detach().numpy()
    model = load_model("trained.pth", heads=2)
    assert np.asarray(model.predict(batch))[:, 0] == pytest.approx(expected, abs=1e-12)


def test_the_documentation_explains_every_column_row_and_role():
    page = (ROOT / "docs/inspect.md").read_text().replace("\\", "")
    (row,) = [r for r in re.findall(r"plain_table\((.*?)\)", inspect.getsource(_inspect))]
    columns = set(re.findall(r'"(.*?)"', row)) - {"head", "role"}
    rows = set(re.findall(r'f"(step Σμω|\|Σμ\| / Σ\|μ\||spread of \|ω\||algorithm) +\{',
                          inspect.getsource(_inspect)))  # fmt: skip
    assert len(columns) == 5 and len(rows) == 4
    for name in columns | rows | {*get_args(Role), "unstructured"}:
        assert f"\n| {name} |" in page


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


def test_a_setting_of_the_config_of_a_run_is_not_a_flag(tmp_path, capsys, monkeypatch):
    found = Attention(Diagonal(jnp.asarray(OMEGA), jnp.asarray(MU), DIM))
    # There is no whole run.
    monkeypatch.setattr("iclflow.experiment._inspect_layers.load_model", lambda *_: found)
    task = {"kind": "linear_regression", "eigenvalues": [1.0] * DIM, "context": 9, "noise": -1.0}
    model = {"kind": "separate", "heads": 2, "scale": 0.1}
    (tmp_path / "config.toml").write_text(to_toml({"task": task, "model": model}))
    code, _, err = inspected(capsys, tmp_path, "--context", 8)
    assert code == 2 and "`task.noise` = -1.0: " in err and "--noise" not in err
    code, _, err = inspected(capsys, tmp_path, "--context", 8, "--noise", -2)
    assert code == 2 and "`--noise` = -2.0: " in err


def test_inspect_refuses_tasks_that_do_not_fit(tmp_path, capsys):
    path = tmp_path / "model.safetensors"
    save_model(Attention(Diagonal(jnp.asarray(OMEGA), jnp.asarray(MU), DIM)), path)
    for arguments, words in (
        (("--eigenvalues", 1, 2), "`--eigenvalues` has 2 numbers: must have 5"),
        (("--noise", -1), "`--noise` = -1"),
        (("--context", 0), "`--context` = 0"),
        (("--sequences", 1), "must be at least 2"),
        (("--context", 10**9), "`--context` = 1000000000 is too large: the comparison would need"),
        (("--sequences", 10**12), "`--sequences` = 1000000000000 is too large"),
        (("--heads", 3), "`--heads` = 3: "),
    ):
        code, _, err = inspected(capsys, path, *arguments)
        assert code == 2 and words in err


# Several checkpoints, and models of several layers ------------------------------------------------


def three_checkpoints(folder):
    """A pair of heads that grows from nothing, saved at three steps in names of one kind each."""
    for step, share in ((5, 0.01), (20, 0.5), (100, 1.0)):
        tensors = single_precision(stacked([share * w for w in OMEGA], [share * m for m in MU]))
        place = folder / f"checkpoint-{step}"
        place.mkdir()
        save_file(tensors, place / "model.safetensors", metadata={"heads": "3"})
    save_file(tensors, folder / "last.safetensors", metadata={"heads": "3"})


def test_inspect_compares_the_checkpoints_of_a_folder_in_the_order_of_their_steps(tmp_path, capsys):
    three_checkpoints(tmp_path)
    flags = ("--context", 12, "--sequences", SEQUENCES)
    code, out, _ = inspected(capsys, tmp_path, *flags, "--json")
    found = json.loads(out)
    rows = found["checkpoints"]
    assert code == 0 and [row["step"] for row in rows] == [5, 20, 100]
    assert found["left_out"] == [str(tmp_path / "last.safetensors")]
    assert rows[0]["roles"] == ["idle"] * 3
    assert rows[2]["roles"] == ["positive", "negative", "dummy"]
    assert rows[2]["labels"][0]["matches"][0]["name"] == "one debiased gradient step"
    for row in rows:
        content = (tmp_path / f"checkpoint-{row['step']}" / "model.safetensors").read_bytes()
        assert row["sha256"] == hashlib.sha256(content).hexdigest()
    # A checkpoint is judged as it is alone.
    code, out, _ = inspected(capsys, rows[1]["file"], *flags, "--json")
    assert {"step": 20, **json.loads(out)} == rows[1]
    code, out, _ = inspected(capsys, tmp_path, *flags)
    lines = out.splitlines()
    assert code == 0 and lines[0].split()[:2] == ["step", "loss"]
    assert re.search(r"^ *100 .*one debiased gradient step .*positive, negative, dummy", out, re.M)
    assert f"{rows[0]['sha256']}  checkpoint-5/model.safetensors" in lines
    assert "left out, for want of a step in their names: " in lines[-1]


@pytest.mark.parametrize(
    ("names", "manifest", "found"),
    [
        (["a_step_10.pt", "a_step_9.pt"], None, [9, 10]),
        (["epoch=3-step=400.ckpt", "epoch=10-step=300.ckpt"], None, [300, 400]),
        (["final.pt", "w-7.bin"], None, [7]),
        (["checkpoint-2/pytorch_model.bin", "checkpoint-2/optimizer.pt"], None, [2]),
        (["checkpoint-20/model_v2.bin", "checkpoint-30/model_v2.bin"], None, [20, 30]),
        (["step_40/epoch3.pt", "step_50/epoch3.pt"], None, [40, 50]),
        (["run-1/w-7.pt", "run-1/w-8.pt"], None, [7, 8]),
        (["b.pt", "a.pt"], {"b.pt": 1, "a.pt": 2}, [1, 2]),
    ],
)
def test_steps_are_those_in_names_or_in_the_list(tmp_path, names, manifest, found):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    if manifest is not None:
        (tmp_path / "checkpoints.json").write_text(json.dumps(manifest))
    assert [each.step for each in list_checkpoints(tmp_path).found] == found


@pytest.mark.parametrize(
    ("names", "manifest", "words"),
    [
        ([], None, "holds neither a run nor checkpoints"),
        (["final.pt"], None, "holds neither a run nor checkpoints"),
        (["a-1.pt", "b-1.pt"], None, "are all of step 1"),
        (["a-1.pt"], "[1]", "must be a JSON object such as"),
        (["a-1.pt"], "{", "is not valid JSON"),
        (["model-00001-of-00002.pt"], None, "model-00001-of-00002.pt` holds a part of the weights"),
    ],
)
def test_folders_without_an_order_are_refused(tmp_path, capsys, names, manifest, words):
    for name in names:
        (tmp_path / name).touch()
    if manifest is not None:
        (tmp_path / "checkpoints.json").write_text(manifest)
    code, out, err = inspected(capsys, tmp_path)
    assert code == 2 and out == "" and words in err and err.count("\n") == 1


def biased(tensors, value):
    zeros = {
        f"layer.{name}_proj.bias": np.zeros(len(tensors["layer.q_proj.weight"])) for name in "qkv"
    }
    return tensors | zeros | {"layer.q_proj.bias": zeros["layer.q_proj.bias"] + value}


def test_checkpoints_whose_biases_begin_at_zero_are_read_alike(tmp_path, capsys):
    for step in (0, 1):
        tensors = single_precision(biased(stacked(), float(step)))
        save_file(tensors, tmp_path / f"step{step}.safetensors", metadata={"heads": "3"})
    code, out, _ = inspected(capsys, tmp_path, "--json")
    rows = json.loads(out)["checkpoints"]
    assert code == 0 and all("layers" in row and "loss" not in row for row in rows)
    code, out, _ = inspected(capsys, tmp_path)
    assert code == 0 and "no loss and no algorithm" in out


def test_rows_with_and_without_a_loss_are_one_table(capsys):
    match = {"name": "zero", "distance": 0.1, "standard_error": 0.01, "step_size": None}
    label = {"matches": [match], "known": True, "heads": [{"role": "idle"}]}
    whole = {"step": 0, "loss": 1.0, "labels": [label], "roles": ["idle"]}
    part = {"step": 1, "layers": [{"labels": [{"heads": [{"role": "idle"}]}]}]}
    about = {"sha256": "0", "file": "/elsewhere/model.pt"}
    rows = [row | about for row in (whole, part)]
    print_series({"folder": "here", "checkpoints": rows, "left_out": []})
    out = capsys.readouterr().out
    assert "zero" in out and "0  /elsewhere/model.pt" in out


def test_a_model_with_an_mlp_is_not_taken_for_its_attention_alone(tmp_path, capsys):
    path = tmp_path / "model.safetensors"
    more = {f"{name}.weight": np.ones((6, 6)) for name in ("read_in", "linear1")}
    save_file(single_precision(stacked() | more), path, metadata={"heads": "3"})
    code, out, _ = inspected(capsys, path, "--json")
    found = json.loads(out)
    assert code == 0 and "loss" not in found and "algorithm" not in found["layers"][0]["labels"][0]
    assert "not part of them: other parts (`linear1`, `read_in`)" in found["missing"]


def test_checkpoints_beside_files_of_others_are_compared(tmp_path, capsys):
    (tmp_path / "manifest.json").write_text("{}")
    (tmp_path / "config.toml").write_text("epochs = 3")
    (tmp_path / "watch.json").write_text("{}")
    # What `icl.watch` keeps of its looks is not what the trainer saved.
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights/7.safetensors").touch()
    code, _, err = inspected(capsys, tmp_path)
    assert code == 2 and "is the folder of a watched training" in err
    tensors = single_precision(biased(stacked(), 1.0))
    (tmp_path / "checkpoint-7").mkdir()
    path = tmp_path / "checkpoint-7/model.safetensors"
    save_file(tensors, path, metadata={"heads": "3"})
    code, out, _ = inspected(capsys, tmp_path, "--json")
    (row,) = json.loads(out)["checkpoints"]
    assert code == 0 and (row["step"], row["file"]) == (7, str(path))


def test_the_file_that_says_the_number_of_heads_is_named(tmp_path, capsys):
    path, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    save_file(single_precision(stacked()), path)
    config.write_text('{"n_head": 2}')
    code, _, err = inspected(capsys, path, "--heads", 3)
    assert code == 2 and f"`--heads` = 3: `{config}` says that there are 2" in err


def test_a_flag_in_metadata_is_text(tmp_path):
    tensors, path = single_precision(biased(stacked(), 1.0)), tmp_path / "model.safetensors"
    read = []
    for flag in ("True", "False"):
        save_file(tensors, path, metadata={"heads": "3", "scale_attn_weights": flag})
        (layer,) = load_layers(path) or ()
        read.append(np.asarray(layer.model.kq()))
    assert read[1] == pytest.approx(6**0.5 * read[0], abs=1e-6)  # heads are as wide as a token


def test_inspect_shows_the_heads_of_every_layer(tmp_path, capsys):
    rng, path = np.random.default_rng(0), tmp_path / "model.safetensors"
    tensors = {
        "read_in.weight": rng.normal(size=(4, 6)),
        "read_out.weight": rng.normal(size=(1, 4)),
    }
    for layer in range(2):
        tensors[f"h.{layer}.attn.c_attn.weight"] = rng.normal(size=(4, 12))
        tensors[f"h.{layer}.attn.c_proj.weight"] = rng.normal(size=(4, 4))
    save_file(single_precision(tensors), path)
    # As `transformers` saves it beside the weights.
    (tmp_path / "config.json").write_text('{"n_head": 2, "n_layer": 2, "other": [1]}')
    flags = ("--embed", "read_in", "--unembed", "read_out")
    code, out, _ = inspected(capsys, path, *flags, "--json")
    found = json.loads(out)
    assert code == 0 and (found["dim"], found["outputs"]) == (5, 1)
    assert [layer["name"] for layer in found["layers"]] == ["h.0.attn", "h.1.attn"]
    assert [layer["heads"] for layer in found["layers"]] == [2, 2]
    code, out, _ = inspected(capsys, path, *flags)
    assert code == 0 and "2 layers of attention" in out and "h.1.attn: 2 heads of width 2" in out
    assert "not part of them: what other layers write" in out
    for arguments, words in (
        (("--embed", "read_in"), "`--unembed` is missing"),
        (("--embed", "nowhere", "--unembed", "read_out"), "`--embed` = 'nowhere'"),
        ((*flags, "--out", tmp_path / "picture"), "only a model of one layer is drawn"),
    ):
        code, _, err = inspected(capsys, path, *arguments)
        assert code == 2 and words in err and err.count("\n") == 1
