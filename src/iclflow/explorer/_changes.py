"""Configs that the reader changes: checked, and repaired after a change of kind."""

import copy
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from ..config import Config, InputError, known_keys, parse_config, section_class, sections
from ._limits import RequestError, check_limits

# Settings that a kind needs and that have no default.
_NEEDED: dict[tuple[str, str], dict[str, Any]] = {
    # As long as gradient flow takes through the four plateaus of the first preset.
    ("flow", "gradient_descent"): {"learning_rate": 0.2, "steps": 15_000},
    ("flow", "sgd"): {"learning_rate": 0.2, "steps": 15_000},
    ("flow", "adam"): {"learning_rate": 3e-3, "steps": 2000},
    ("risk", "dataset"): {"sequences": 2000},
    ("risk", "minibatch"): {"sequences": 2000},
    ("task", "linear_regression"): {"eigenvalues": [0.4, 0.3, 0.2, 0.1]},
    ("task", "in_context_in_weight"): {"eigenvalues": [0.25] * 4, "fraction": 0.6},
    ("task", "finite_tasks"): {"eigenvalues": [0.25] * 4, "tasks": 2},
    ("task", "multi_task"): {"coordinates": [[0, 1, 2], [3, 4, 5]], "context": 40},
    ("task", "quadratic"): {"inputs": 4},
    ("task", "sparse"): {"inputs": 6},
    ("task", "two_layer_relu"): {"inputs": 4},
    ("task", "decision_tree"): {"inputs": 4},
    ("task", "hermite"): {"inputs": 4},
    # Only some of its weights have heads; with the query among the keys it has no exact risk.
    ("model", "linear_stack"): {"heads": 1, "self_attention": False, "spread": 0.0},
    ("save", "explicit"): {"times": [0.0, 1.0, 10.0, 100.0]},
}
# Kinds whose settings mean something else than those of the same names elsewhere: the steps of Adam
# are of another size than those along the gradient.
_ALONE = {"adam", "linear_stack"}
# Changes that may make a config work again, the mildest first.
_REPAIRS: tuple[dict[str, Any], ...] = (
    {"save.kind": "drops"},
    {"risk.kind": "best"},
    {"flow.end": 300.0},
    {"flow.kind": "gradient_flow"},
    {"model.rank": 1},
    {"task.inputs": None},
    {"task.sparsity": 1},
    {"flow.steps": 20_000},
    {"model.width": None},
    {"model.heads": 2},
    {"task.prior_mean": None, "task.prior_covariance": None, "task.fixed_weight": None},
    {"model.key_imbalance": 0.0, "model.value_imbalance": 0.0},
    {"risk.kind": "exact"},
    {"risk.kind": "large_context"},
    {"flow.kind": "adam"},
    {"risk.kind": "sampled"},
    {"risk.kind": "dataset"},
    {"model.kind": "merged"},
    {"model.kind": "multi_merged"},
    {"task.kind": "linear_regression"},
    {"task.kind": "multi_task"},
)
# Sets of four would be thousands of configs to check.
_MOST_REPAIRS = 3


def check_config(config: Any) -> Config:
    """The config that a page sent; a `RequestError` that names the setting where it cannot run."""
    if not isinstance(config, Mapping):
        raise RequestError("`config` must be a table of settings, as a TOML file holds.", "config")
    try:
        found = parse_config(dict(config))
    except RequestError:
        raise
    except InputError as error:
        # The page marks a setting, not an entry of it.
        field = error.field and error.field.partition("[")[0]
        raise RequestError(str(error), field) from None
    check_limits(found)
    return found


def change_config(config: Any, field: Any, value: Any) -> tuple[Config, list[str]]:
    """The config with one setting changed, and the other settings that had to change with it.

    If the config does not work with this change alone, the fewest and mildest further changes are
    made with which it does; if there are none, the refusal of the change alone is raised.
    """
    if not isinstance(config, Mapping) or not isinstance(field, str):
        raise RequestError(
            "`field` and `config` are needed: the name of a setting and all settings.", status=400
        )
    given = {key: copy.deepcopy(part) for key, part in config.items() if part is not None}
    wanted = _with(given, field, value)
    try:
        first = check_config(wanted)
    except RequestError as refusal:
        for repairs in _combinations(field):
            tried = wanted
            for repair in repairs:
                for name, new in repair.items():
                    tried = _with(tried, name, new)
            try:
                found = check_config(tried)
            except RequestError:
                continue
            if not _has(found, field, value):
                continue
            return found, _differences(given, found, field)
        raise refusal from None
    return first, _differences(given, first, field)


def _combinations(field: str) -> Iterator[tuple[dict[str, Any], ...]]:
    """Sets of repairs that do not touch the changed setting, small sets first."""
    usable = [repair for repair in _REPAIRS if field not in repair]
    if not field.endswith(".kind"):  # a slider must not change the model or the task
        usable = [r for r in usable if not {"model.kind", "task.kind"} & set(r)]
    for count in range(1, _MOST_REPAIRS + 1):
        for chosen in itertools.combinations(usable, count):
            names = [name for repair in chosen for name in repair]
            if len(set(names)) == len(names):
                yield chosen


def _has(config: Config, field: str, value: Any) -> bool:
    """Whether a setting still has the value that the reader chose."""
    section, _, key = field.partition(".")
    here = config.given().get(section)
    return (here.get(key) if key and isinstance(here, dict) else here) == value


def _with(data: dict[str, Any], field: str, value: Any) -> dict[str, Any]:
    """The settings with one of them changed. A section of another kind keeps what that knows."""
    section, _, key = field.partition(".")
    if not key:
        return {**data, field: value}
    here = data.get(section)
    here = dict(here) if isinstance(here, Mapping) else {}
    if key != "kind":
        here.pop(key, None)
        return {**data, section: here if value is None else {**here, key: value}}
    if section not in sections() or not isinstance(value, str):
        raise RequestError(f"`{field}` is not a setting.", field, 400)
    known = known_keys({section: {"kind": value}}).get(section)
    if known is None:
        kinds = ", ".join(known_keys({})[f"{section}.kind"])
        raise RequestError(f"`{field}` = {value[:60]!r}: must be one of {kinds}.", field, 400)
    needed = _NEEDED.get((section, value), {})
    same = here.get("kind") == value
    # The kind before may be unknown: then it says nothing about what can stay.
    others = {k: v for k, v in here.items() if k in known and k != "kind"}
    kept = {k: v for k, v in others.items() if same or _fits(section, value, k, v)}
    # A page may send anything as a kind, also what has no hash.
    if any(kind in (value, here.get("kind")) for kind in _ALONE) and not same:
        kept = {k: v for k, v in kept.items() if k not in needed}
    return {**data, section: {**needed, **kept, "kind": value}}


def _fits(section: str, kind: str, key: str, value: Any) -> bool:
    """Whether a value of another kind may stay: sizes do; choices only if they exist there."""
    alone = {**_NEEDED.get((section, kind), {}), "kind": kind, key: value}
    wanted = section_class(section, alone)
    assert wanted is not None  # the kind is known by now
    try:
        wanted.model_validate(alone)
    except ValidationError as error:
        return all(problem["loc"][0] != key for problem in error.errors())
    return True


def _differences(before: Mapping[str, Any], after: Config, field: str) -> list[str]:
    """The names of the settings that differ, other than the one that the reader changed."""
    names = []
    for section, settings in after.given().items():
        old = before.get(section)
        if not isinstance(settings, dict):
            names += [section] if section in before and old != settings else []
            continue
        old = old if isinstance(old, Mapping) else {}
        for key, value in settings.items():
            if (key == "kind" or key in old) and old.get(key, value) != value:
                names.append(f"{section}.{key}")
    return [name for name in names if name != field]
