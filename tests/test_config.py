"""Configs: what is accepted, what is refused and in which words, and what a flag does to a file."""

import errno
import importlib
import tomllib

import jax
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iclflow.config import (
    BASE,
    Config,
    InputError,
    Limit,
    _checks,
    _limits,
    load_config,
    memory_needed,
    out_of_memory,
    parse_config,
    read_toml,
    to_toml,
    with_flags,
)
from iclflow.config._kinds import kinds_in_files
from iclflow.papers import STUDIES

EIGHT = Limit(8.0 * 2**30, "that this container allows")


def base() -> dict:
    """The smallest config there is: two components, two heads."""
    return {
        "task": {"kind": "linear_regression", "eigenvalues": [0.4, 0.3]},
        "model": {"kind": "separate", "heads": 2},
    }


def changed(**sections) -> dict:
    """The smallest config with settings put over it; a setting of None is taken away."""
    data = base()
    for name, value in sections.items():
        if isinstance(value, dict):
            merged = {**data.get(name, {}), **value}
            data[name] = {key: entry for key, entry in merged.items() if entry is not None}
        else:
            data[name] = value
    return data


def refusal(data: dict) -> str:
    with pytest.raises(InputError) as caught:
        parse_config(data)
    return str(caught.value)


def test_a_section_without_a_kind_has_that_of_its_default():
    config = parse_config(changed(flow={"end": 10.0}, save={"loss": 0.1}, risk={}))
    kinds = config.flow.kind, config.save.kind, config.risk.kind
    assert kinds == ("gradient_flow", "drops", "best")
    assert config == parse_config(
        changed(flow={"kind": "gradient_flow", "end": 10.0}, save={"kind": "drops", "loss": 0.1})
    )
    assert parse_config(with_flags(changed(flow={"rtol": 1e-6}), ["--flow.end", "5"])).flow.end == 5


# Files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", STUDIES)
def test_studies_survive_being_written_and_read(id):
    config = STUDIES[id].config
    again = parse_config(tomllib.loads(to_toml(config.given())))
    assert again == config and again.hash == config.hash


def test_a_file_without_a_name_gives_its_own(tmp_path):
    path = tmp_path / "my run (2).toml"
    path.write_text(to_toml(base()))
    assert load_config(path).name == "my-run-2"


def test_the_written_config_spells_out_every_default():
    written = tomllib.loads(to_toml(parse_config(base()).given()))
    assert written["flow"] == {
        "kind": "gradient_flow",
        "solver": "auto",
        "rtol": 1e-9,
        "tolerance": 1e-6,
        "max_steps": 2_000_000,
    }
    assert written["task"]["context"] == 31 and written["model"]["rank"] == 1


plain = st.one_of(
    st.booleans(),
    st.integers(-(2**60), 2**60),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=("Cs",)), max_size=8),
)
documents = st.dictionaries(
    st.text(st.characters(codec="ascii"), min_size=1, max_size=6),
    st.recursive(
        plain | st.lists(plain, max_size=3),
        lambda inner: st.dictionaries(st.text(min_size=1, max_size=4), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=5,
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(documents)
@pytest.mark.slow
def test_toml_that_is_written_reads_back_the_same(data):
    assert tomllib.loads(to_toml(data)) == data


# Identity -------------------------------------------------------------------------------------


def test_the_hash_sees_everything_but_the_name():
    config = parse_config(base())
    assert parse_config(changed(name="other")).hash == config.hash
    different = [
        changed(seed=1),
        changed(theory=False),
        changed(task={"noise": 1e-9}),
        changed(model={"scale": 0.02}),
        changed(risk={"kind": "exact"}),
        changed(flow={"kind": "gradient_flow", "end": 10}),
        changed(save={"kind": "drops", "loss": 0.1}),
    ]
    hashes = {parse_config(data).hash for data in different}
    assert len(hashes) == len(different) and config.hash not in hashes


def test_scalar_stacks_end_by_themselves_where_their_smallest_loss_is_known():
    task = {"eigenvalues": [1.0, 1.0], "context": 9}
    model = {"kind": "linear_stack", "weights": "scalar", "heads": 1}
    assert parse_config(changed(task=task, model=model)).flow.end is None
    assert parse_config(changed(task={**task, "noise": 0.1}, model={**model, "depth": 1}))
    for more in ({"noise": 0.1}, {"eigenvalues": [1.0, 0.5]}):
        with pytest.raises(InputError, match="`flow.end` is missing"):
            parse_config(changed(task={**task, **more}, model=model))


def test_the_hash_does_not_depend_on_how_a_number_is_written():
    whole = changed(task={"eigenvalues": [1, 2], "noise": 0, "context": [31]})
    decimal = changed(task={"eigenvalues": [1.0, 2.0], "noise": 0.0, "context": 31})
    assert parse_config(whole).hash == parse_config(decimal).hash


def test_configs_never_change():
    config = parse_config(base())
    with pytest.raises(pydantic.ValidationError):
        config.seed = 3
    with pytest.raises(pydantic.ValidationError):
        config.model.heads = 3


# What is refused ------------------------------------------------------------------------------

NAN = float("nan")
MERGED = {"kind": "merged"}
TWO_TASKS = {"kind": "multi_task", "eigenvalues": None, "coordinates": [[0, 1], [1, 2]]}
REFUSED = {
    "negative noise": (
        changed(task={"noise": -1}),
        "`task.noise` = -1: must be at least 0.",
    ),
    "no context": (changed(task={"context": 0}), "`task.context` = 0: must be at least 1."),
    "a context in a list": (
        changed(task={"context": [8, 0]}),
        "`task.context[1]` = 0: must be at least 1.",
    ),
    "NaN": (
        changed(task={"eigenvalues": [1.0, NAN]}),
        "`task.eigenvalues[1]` = nan: must be finite.",
    ),
    "a negative eigenvalue": (
        changed(task={"eigenvalues": [1.0, -2.0]}),
        "`task.eigenvalues[1]` = -2.0: must be greater than 0.",
    ),
    "a huge number": (
        changed(task={"noise": 1e300}),
        "`task.noise` = 1e+300: must be at most 1e+12.",
    ),
    "a text for a number": (
        changed(model={"heads": "2"}),
        "`model.heads` = '2': must be a whole number.",
    ),
    "a fraction of a head": (
        changed(model={"heads": 2.5}),
        "`model.heads` = 2.5: must be a whole number.",
    ),
    "true for a number": (
        changed(task={"context": True}),
        "`task.context` = True: must be a whole number.",
    ),
    "a number for true": (changed(theory=1), "`theory` = 1: must be true or false."),
    "a number for a list": (
        changed(task={"eigenvalues": 3}),
        "`task.eigenvalues` = 3: must be a list.",
    ),
    "an empty list": (
        changed(task={"eigenvalues": []}),
        "`task.eigenvalues` = []: must be a list with at least 1 entry.",
    ),
    "a number for a section": (
        changed(task=3),
        "`task` = 3: must be a section of settings.",
    ),
    "an unknown choice": (
        changed(model={"scheme": "best"}),
        "`model.scheme` = 'best': must be one of 'gaussian', 'balanced', 'identity', 'paper'.",
    ),
    "an unknown kind": (
        changed(task={"kind": "nonlinear"}),
        "`task.kind` = 'nonlinear': must be one of 'linear_regression', 'in_context_in_weight', "
        "'multi_task', 'quadratic', 'sparse', 'two_layer_relu', 'decision_tree', 'hermite', "
        "'finite_tasks'.",
    ),
    "no kind": (
        changed(model={"kind": None}),
        "`model.kind` is missing: must be one of 'merged', 'separate', 'two_layer', "
        "'convolutional', 'structured', 'factored', 'multi_merged', 'multi_factored', "
        "'multi_structured', 'multi_blind', 'multi_spectral', 'stack', 'linear_stack'.",
    ),
    "a setting that is needed": (
        changed(model={"heads": None}),
        "`model.heads` is missing: it must be given.",
    ),
    "a setting that is needed, misspelt": (
        changed(model={"heads": None, "haeds": 2}),
        "`model.haeds` is not a setting of [model]: did you mean `heads`?",
    ),
    "a misspelt kind": (
        changed(model={"kind": None, "knid": "merged"}),
        "`model.knid` is not a setting of [model]: did you mean `kind`?",
    ),
    "a misspelt section": (
        {"task": base()["task"], "modell": base()["model"]},
        "`modell` is not a setting of the top level: did you mean `model`?",
    ),
    "a setting of a kind that is not said": (
        changed(flow={"learning_rate": 0.1}),
        '`flow.learning_rate` is not a setting of [flow] of kind "gradient_flow", the default: '
        "allowed are atol, end, kind, max_steps, rtol, solver, tolerance.",
    ),
    "a misspelt setting": (
        changed(task={"nois": 1}),
        "`task.nois` is not a setting of [task]: did you mean `noise`?",
    ),
    "a setting of another kind": (
        changed(flow={"kind": "gradient_flow", "learning_rate": 0.1}),
        '`flow.learning_rate` is not a setting of [flow] of kind "gradient_flow": allowed are '
        "atol, end, kind, max_steps, rtol, solver, tolerance.",
    ),
    "a kind that cannot be had, beside settings of another": (
        changed(model={"activation": "softmax"}, risk={"kind": "exact", "batch": 8}),
        '`risk.kind` = "exact" does not exist for softmax attention: must be "dataset", '
        '"minibatch" or "sampled".',
    ),
    "an unknown section": (
        changed(optimiser={}),
        "`optimiser` is not a setting of the top level: allowed are flow, model, name, risk, save, "
        "seed, task, theory.",
    ),
    "a name that is a path": (
        changed(name="../up"),
        "`name` = '../up': must be made of letters, digits, `.`, `_` and `-`, and begin with a "
        "letter or a digit.",
    ),
    "both covariances": (
        changed(task={"covariance": [[1, 0], [0, 1]]}),
        "`task.eigenvalues` and `task.covariance`: both are given, must be exactly one.",
    ),
    "no covariance": (
        changed(task={"eigenvalues": None}),
        "`task.eigenvalues` and `task.covariance`: neither is given, must be exactly one.",
    ),
    "a rank above the dimension": (
        changed(model={"rank": 3}),
        "`model.rank` = 3: must not exceed the input dimension, 2.",
    ),
    "gradient flow on fresh sequences": (
        changed(risk={"kind": "sampled"}),
        '`flow.kind` = "gradient_flow" needs a risk without randomness: `risk.kind` must be '
        '"exact" or "dataset", or `flow.kind` "sgd" or "adam".',
    ),
    "an exact softmax": (
        changed(model={"activation": "softmax"}, risk={"kind": "exact"}),
        '`risk.kind` = "exact" does not exist for softmax attention: must be "dataset", '
        '"minibatch" or "sampled".',
    ),
    "a softmax flow without end": (
        changed(model={"activation": "softmax"}, risk={"kind": "dataset", "sequences": 10}),
        "`flow.end` is missing: softmax attention has no known smallest loss, so the run must be "
        "told when to end.",
    ),
    "a batch larger than the data": (
        changed(
            risk={"kind": "minibatch", "sequences": 10, "batch": 11},
            flow={"kind": "sgd", "learning_rate": 0.1, "steps": 5},
        ),
        "`risk.batch` = 11: must not exceed `risk.sequences` = 10.",
    ),
    "equal spacing without an end": (
        changed(save={"kind": "linear"}),
        '`save.kind` = "linear" needs a run with a known end: give `flow.end`, or use "drops".',
    ),
    "times that go back": (
        changed(save={"kind": "explicit", "times": [3, 2]}),
        "`save.times` = (3.0, 2.0): must increase strictly.",
    ),
    "times after the end": (
        changed(
            save={"kind": "explicit", "times": [30]}, flow={"kind": "gradient_flow", "end": 10}
        ),
        "`save.times` ends at 30: must lie within the run, which ends at 10.",
    ),
    "two priors": (
        changed(task={"prior_variance": 0.5, "prior_covariance": [[1, 0], [0, 1]]}),
        "`task.prior_covariance` and `task.prior_variance`: both are given, must be at most one.",
    ),
    "one label for several tasks": (
        changed(task=TWO_TASKS, model=MERGED),
        '`model.kind` = "merged" does not fit `task.kind` = "multi_task": must be one of '
        '"multi_merged", "multi_factored", "multi_structured", "multi_blind" and '
        '"multi_spectral".',
    ),
    "several labels for one task": (
        changed(model={"kind": "multi_merged"}),
        '`model.kind` = "multi_merged" does not fit `task.kind` = "linear_regression": must be a '
        "kind with one label.",
    ),
    "too few inputs": (
        changed(task={**TWO_TASKS, "inputs": 2}, model={"kind": "multi_merged"}),
        "`task.inputs` = 2: must be at least 3, because `task.coordinates` go up to 2.",
    ),
    "a coordinate below zero": (
        changed(task={**TWO_TASKS, "coordinates": [[0], [-1]]}, model={"kind": "multi_merged"}),
        "`task.coordinates[1][0]` = -1: must be at least 0.",
    ),
    "more coordinates than there are": (
        changed(task={"kind": "sparse", "eigenvalues": None, "inputs": 2}),
        "`task.sparsity` = 3: must not exceed `task.inputs` = 2.",
    ),
    "a scheme of another kind": (
        changed(model={"kind": "structured", "scheme": "balanced"}),
        "`model.scheme` = 'balanced': must be one of 'gaussian', 'small_identity', 'opposite'.",
    ),
    "an exact stack": (
        changed(model={"kind": "stack"}, risk={"kind": "exact"}),
        '`risk.kind` = "exact" does not exist for stacks of attention: must be "dataset", '
        '"minibatch" or "sampled".',
    ),
    "more layers than an exact risk can have": (
        changed(model={"kind": "linear_stack", "heads": 1, "depth": 3}, risk={"kind": "exact"}),
        '`risk.kind` = "exact" does not exist for stacks of 3 layers like these (numbers on white '
        "inputs have one up to 40 layers, what is diagonal with the input covariance up to 4, "
        'other matrices up to 2): must be "dataset", "minibatch" or "sampled".',
    ),
    "a loop whose layers differ": (
        changed(model={"kind": "linear_stack", "heads": 1, "tied": True, "spread": 0.1}),
        "`model.spread` = 0.1: must be 0 in a loop, which has one set of weights.",
    ),
    "no layers": (
        changed(model={"kind": "linear_stack", "heads": 1, "depth": 0}),
        "`model.depth` = 0: must be at least 1.",
    ),
    "heads of a single matrix": (
        changed(model={"kind": "linear_stack", "heads": 2}),
        '`model.heads` = 2: must be 1 unless `model.weights` is "merged" or "separate".',
    ),
    "heads that move inputs": (
        changed(model={"kind": "linear_stack", "weights": "merged", "moving": True}),
        '`model.moving` = True: must be false for `model.weights` = "merged".',
    ),
    "a scheme of other weights": (
        changed(model={"kind": "linear_stack", "heads": 1, "scheme": "balanced"}),
        "`model.scheme` = 'balanced': must be \"gaussian\" or \"small_identity\" for "
        '`model.weights` = "full".',
    ),
    "exact linear attention on a nonlinear task": (
        changed(
            task={"kind": "quadratic", "eigenvalues": None, "inputs": 2}, risk={"kind": "exact"}
        ),
        '`risk.kind` = "exact" does not exist for linear attention on `task.kind` = "quadratic": '
        'must be "dataset", "minibatch" or "sampled".',
    ),
    "an exact risk with a preferred direction": (
        changed(model={"kind": "structured"}, risk={"kind": "exact"}),
        '`risk.kind` = "exact" does not exist for structured attention unless the covariances of '
        "inputs and prior are multiples of the identity, the prior mean is 0, and there is one ω "
        'per head and no self-attention: must be "large_context", "dataset", "minibatch" or '
        '"sampled".',
    ),
    "an approximation of something else": (
        changed(risk={"kind": "first_order"}),
        '`risk.kind` = "first_order" does not exist for linear attention on `task.kind` = '
        '"linear_regression": must be "exact", "dataset", "minibatch" or "sampled".',
    ),
    "a posterior that nobody knows": (
        changed(
            task={"kind": "decision_tree", "eigenvalues": None, "inputs": 2},
            risk={"kind": "sampled", "integrate": "posterior"},
            flow={"kind": "sgd", "learning_rate": 0.1, "steps": 5},
        ),
        '`risk.integrate` = "posterior" needs the Bayes predictor, which is not known for this '
        '`task.kind` = "decision_tree": must be "auto" or "none".',
    ),
    "a stack without end": (
        changed(
            model={"kind": "stack", "activation": "linear"},
            risk={"kind": "dataset", "sequences": 10},
        ),
        "`flow.end` is missing: such attention has no known smallest loss, so the run must be "
        "told when to end.",
    ),
    "the full form in many dimensions": (
        changed(
            task={"eigenvalues": [0.1] * 20}, model={"kind": "merged", "form": "full"}
        ),
        '`model.form` = "full" at input dimension 20 has 4620 features: an exact risk exists for '
        '4096 at most, so `risk.kind` must be "sampled".',
    ),
}  # fmt: skip


@pytest.mark.parametrize("data, sentence", REFUSED.values(), ids=REFUSED)
def test_what_cannot_work_is_refused_in_one_sentence(data, sentence):
    assert refusal(data) == sentence


@pytest.mark.parametrize(
    "data, name",
    [
        (changed(model={"heads": 10**11}), "`model.heads` = 100000000000"),
        (
            changed(risk={"kind": "dataset", "sequences": 10**11}),
            "`risk.sequences` = 100000000000",
        ),
        (
            changed(
                save={"kind": "linear", "count": 10**9}, flow={"kind": "gradient_flow", "end": 1}
            ),
            "`save.count` = 1000000000",
        ),
        (
            changed(
                task={"kind": "quadratic", "eigenvalues": None, "inputs": 10**10},
                flow={"kind": "sgd", "learning_rate": 0.1, "steps": 5},
            ),
            "`task.inputs` = 10000000000",
        ),
        (
            changed(
                model={"kind": "factored", "width": 10**11},
                flow={"kind": "sgd", "learning_rate": 0.1, "steps": 5},
            ),
            "`model.width` = 100000000000",
        ),
        (
            changed(
                task={"context": 10**9},
                risk={"kind": "sampled"},
                flow={"kind": "sgd", "learning_rate": 0.1, "steps": 5},
            ),
            "`task.context` = (1000000000,)",
        ),
    ],
)
def test_a_run_that_does_not_fit_into_memory_is_refused(data, name, monkeypatch):
    monkeypatch.setattr(_checks, "memory_here", lambda: EIGHT)
    sentence = refusal(data)
    assert sentence.startswith(f"{name} is too large: the run would need about ")
    assert sentence.endswith(
        "GiB of memory, and may take 6 of the 8 GiB that this container allows."
    )


def test_a_jacobian_that_does_not_fit_into_memory_is_refused(monkeypatch):
    monkeypatch.setattr(_checks, "memory_here", lambda: EIGHT)
    large = changed(
        task={"eigenvalues": [1.0] * 100},
        model={"kind": "merged", "heads": 100},
        flow={"solver": "implicit", "end": 1.0},
        save={"kind": "linear", "count": 2},
    )
    sentence = refusal(large)
    start = "`flow.solver` = 'implicit' factorises a matrix with a row for each of 1000100 weights"
    assert sentence.startswith(start)
    # The same weights without it, and with it a few of them, fit.
    explicit = parse_config({**large, "flow": {"solver": "explicit", "end": 1.0}})
    few = parse_config({**large, "model": {"kind": "merged", "heads": 1, "scale": 0.1},
                        "task": {**large["task"], "eigenvalues": [1.0] * 50}})  # fmt: skip
    # Three square matrices are what is needed in any case.
    for config, least in ((explicit, 100 * 8 * 10**4), (few, 3 * 8 * 2501**2)):
        assert least < sum(memory_needed(config).values()) - BASE < 3 * 2**30


def test_a_test_set_counts_and_is_bounded(monkeypatch):
    monkeypatch.setattr(_checks, "memory_here", lambda: EIGHT)
    sampled = {"kind": "sampled", "batch": 4}
    flow = {"kind": "sgd", "learning_rate": 0.1, "steps": 5}
    long = {"eigenvalues": [1.0] * 32, "context": 2000}
    softmax = {"kind": "merged", "activation": "softmax"}
    config = parse_config(changed(task=long, model=softmax, risk=sampled, flow=flow))
    needed = memory_needed(config)["task.context"]
    # Of 4096 sequences in single precision all are stored, and few are predicted at a time.
    stored = 4 * 4096 * 2001 * 33
    assert stored < needed < 2 * stored


def test_a_run_that_is_there_is_read_wherever_it_was_made(monkeypatch):
    monkeypatch.setattr(_checks, "memory_here", lambda: EIGHT)
    data = changed(model={"heads": 10**11})
    assert parse_config(data, stored=True).model.heads == 10**11
    assert "is too large" in refusal(data)


# Memory ---------------------------------------------------------------------------------------


GROUPS = {
    "version 2, nested": (
        "0::/a/b\n",
        {"a/b/memory.max": "max", "a/memory.max": str(3 * 2**29), "memory.max": str(2**40)},
        1.5,
    ),
    "version 2 beside 1": ("0::/a\n", {"unified/a/memory.max": str(2**31)}, 2.0),
    "version 1": (
        "5:cpu:/x\n4:memory:/a/b\n",
        {"memory/a/b/memory.limit_in_bytes": str(2**32), "a/b/memory.max": "1"},
        4.0,
    ),
    "a path that only the host sees": ("0::/docker/abc\n", {"memory.max": str(2**30)}, 1.0),
    "none": ("0::/\n", {"memory.max": "max\n"}, None),
    "another system": ("", {}, None),
}


@pytest.mark.parametrize("own, files, least", GROUPS.values(), ids=GROUPS)
def test_the_limit_of_a_container_is_the_least_around_the_process(own, files, least, tmp_path):
    files = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    for name, text in (files | {"proc/self/cgroup": own}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = min(_limits.container_limits(tmp_path), default=None)
    assert (found and found.size / 2**30) == least
    assert found is None or found.words == "that this container allows"


def test_what_is_free_and_what_a_process_may_take_are_limits_too(tmp_path, monkeypatch):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 8388608 kB\nMemAvailable:  1048576 kB\n")
    (free,) = _limits.free_memory(tmp_path)
    assert free == (2**30, "that are free on this machine")
    resource = pytest.importorskip("resource")
    bounds = {resource.RLIMIT_AS: 4 * 2**30, resource.RLIMIT_DATA: resource.RLIM_INFINITY}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (bounds[kind], bounds[kind]))
    (addresses,) = _limits.process_limits()
    assert addresses.size == 4 * 2**30 - _limits.UNUSED_ADDRESSES
    assert addresses.sentence == "2.06 of the 2.75 GiB that are left of the 4 GiB of `ulimit -v`"
    bounds[resource.RLIMIT_DATA] = 2**30
    assert min(_limits.process_limits()) == (2**30, "that `ulimit -d` allows")


def test_errors_that_say_that_memory_ran_out_become_one_sentence(monkeypatch):
    monkeypatch.setattr(_limits, "memory_here", lambda: EIGHT)
    said = "RESOURCE_EXHAUSTED: Out of memory allocating 35701919744 bytes."
    about = {
        jax.errors.JaxRuntimeError(said): " (33.3 GiB were asked for at once)",
        MemoryError(
            "Unable to allocate 7.45 GiB for an array"
        ): " (7.45 GiB were asked for at once)",
        MemoryError(): "",
        RuntimeError("std::bad_alloc"): "",
        OSError(errno.ENOMEM, "Cannot allocate memory"): "",
    }
    for error, asked in about.items():
        assert out_of_memory(error) == (
            f"This needs more memory than there is{asked}: a run may take 6 of the 8 GiB that this "
            "container allows. Smaller sizes, batches or data sets need less."
        )
    for other in (
        ValueError("out of memory"),
        RuntimeError("broken"),
        OSError(errno.ENOSPC, "full"),
    ):
        assert out_of_memory(other) is None


def test_the_exact_softmax_risk_is_the_best_where_it_exists():
    white = {"eigenvalues": [1.0, 1.0], "prior_variance": 0.5}
    flow = {"kind": "gradient_flow", "end": 10.0}
    for task, model, exact in (
        (white, {"kind": "structured"}, True),
        ({**white, "prior_variance": None}, {"kind": "structured"}, True),
        ({**white, "prior_mean": [0.0, 1.0]}, {"kind": "structured"}, False),
        ({**white, "context": [8, 9]}, {"kind": "structured"}, True),
        ({"eigenvalues": [0.4, 0.3]}, {"kind": "structured"}, False),
        (white, {"kind": "structured", "per_coordinate": True}, False),
        (white, {"kind": "structured", "activation": "linear"}, True),
        (white, {"kind": "factored"}, False),
        (white, {"kind": "factored", "activation": "linear"}, True),
        ({"eigenvalues": None, "covariance": [[2, 0], [0, 2]]}, {"kind": "structured"}, True),
        ({"eigenvalues": None, "covariance": [[1, 0.1], [0.1, 1]]}, {"kind": "structured"}, False),
    ):
        data = changed(task=task, model=model, flow=flow)
        if exact:
            assert parse_config(data).exact
        else:
            assert "needs a risk without randomness" in refusal(data)


def test_a_very_long_context_is_no_burden_for_the_exact_risk(monkeypatch):
    monkeypatch.setattr(_checks, "memory_here", lambda: Limit(2.0**30, "that this machine has"))
    assert parse_config(changed(task={"context": 10**9})).task.longest_context == 10**9


# Flags ----------------------------------------------------------------------------------------


def put_over(*flags: str, data: dict | None = None) -> Config:
    return parse_config(with_flags(base() if data is None else data, flags))


def test_flags_win_over_the_file_and_the_file_over_defaults():
    data = changed(seed=1, model={"scale": 0.05})
    config = put_over("--seed", "3", "--model.heads", "8", data=data)
    assert (config.seed, config.model.heads) == (3, 8)  # flags
    assert config.model.scale == 0.05  # the file
    assert config.model.scheme == "gaussian"  # a default


def test_flags_read_numbers_lists_and_choices():
    config = put_over(
        *("--task.eigenvalues", ".5", "2e-1", "--task.context", "8", "16", "--theory", "false"),
        *("--model.scheme", "balanced", "--model.self-attention", "False", "--flow.end=1e3"),
    )
    assert config.task.eigenvalues == (0.5, 0.2) and config.task.context == (8, 16)
    assert config.theory is False and config.model.self_attention is False
    assert config.model.scheme == "balanced" and config.flow.end == 1000.0


def test_a_whole_number_may_have_an_exponent():
    flags = ("--flow.kind", "adam", "--flow.learning_rate", "1e-3", "--flow.steps")
    assert put_over(*flags, "1e4").flow.steps == 10_000
    assert put_over(*flags, "2.5e+1").flow.steps == 25
    for text in ("2.5e0", "1e-3", "4.0", "1e999"):
        with pytest.raises(InputError, match=f"`flow.steps` = '{text}': must be a whole number."):
            put_over(*flags, text)


def test_a_flag_can_choose_another_kind():
    config = put_over("--flow.kind", "adam", "--flow.steps", "9", "--flow.learning_rate", "1e-3")
    assert (config.flow.kind, config.flow.steps) == ("adam", 9)
    assert put_over("--model.kind", "merged").model.kind == "merged"


@pytest.mark.parametrize(
    "flags, sentence",
    [
        (("--seed", "x"), "`seed` = 'x': must be a whole number."),
        (("--task.noise", "-1"), "`task.noise` = -1.0: must be at least 0."),
        (
            ("--model.headz", "8"),
            "'--model.headz' is not a setting of this config: did you mean --model.heads?",
        ),
        (
            ("--scale", "1"),
            "'--scale' is not a setting of this config: did you mean --model.scale?",
        ),
        (
            ("--task.covariance", "1", "0"),
            "`task.covariance` is a list of lists, which has no flag: give it in the file.",
        ),
        (
            ("--flow.kind", "newton"),
            "`flow.kind` = 'newton': must be one of 'gradient_flow', 'gradient_descent', 'sgd', "
            "'adam'.",
        ),
        (
            ("stray",),
            "'stray' is not a setting of this config: `iclflow run FILE --help` lists the "
            "settings.",
        ),
        (
            ("--seed",),
            "Missing value for argument '--seed': `iclflow run FILE --help` lists the settings.",
        ),
        (
            ("--flow.kind", "sgd", "--flow.steps", "5"),
            "`flow.learning_rate` is missing: it must be given.",
        ),
    ],
)
def test_bad_flags_are_refused_in_one_sentence(flags, sentence):
    with pytest.raises(InputError) as caught:
        put_over(*flags)
    assert str(caught.value) == sentence


def test_help_lists_every_setting_with_its_value(capsys):
    with pytest.raises(SystemExit) as stop:
        with_flags(changed(model={"heads": 7}), ["--help"])
    assert stop.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for flag in ("--seed", "--task.noise", "--model.rank", "--flow.rtol", "--save.clock"):
        assert flag in text
    assert "(here: 7)" in text


# Reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content, words",
    [
        (b"seed = = 3", "is not valid TOML: Invalid value (at line 1, column 8)."),
        (b"\xff\xfe\x00", "is not a text file in UTF-8: must be TOML."),
        (b"a = " + b"[" * 5000, "is nested too deeply: must be a plain config."),
    ],
)
def test_files_that_are_no_toml_are_refused(content, words, tmp_path):
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_toml(path)
    assert str(caught.value) == f"`{path}` {words}"


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(InputError, match="does not exist: give the path of a TOML file"):
        read_toml(tmp_path / "none.toml")
    with pytest.raises(InputError, match="is a folder: give the path of a TOML file"):
        read_toml(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        read_toml(tmp_path / "a\0b")


# Kinds in files of their own ---------------------------------------------------------------------

WAVES = """
from typing import ClassVar, Literal

from iclflow.config._task import QuadraticTask, TaskBase


class WavesTask(TaskBase):
    kind: Literal["waves"] = "waves"
    builds: ClassVar[str] = "Waves"
"""


def test_a_kind_in_a_file_of_its_own_is_found(tmp_path, monkeypatch):
    folder = tmp_path / "folder_of_kinds"
    folder.mkdir()
    for name in ("__init__", "_task", "_taskless", "_model_other"):
        (folder / f"{name}.py").touch()
    (folder / "_task_waves.py").write_text(WAVES)
    monkeypatch.syspath_prepend(tmp_path)
    package = importlib.import_module("folder_of_kinds")
    # What the file imports is not its own.
    assert [kind.__name__ for kind in kinds_in_files(package, "task")] == ["WavesTask"]
    assert kinds_in_files(package, "model") == []
