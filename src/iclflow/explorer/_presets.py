"""The studies of the papers that the explorer offers, and the controls for their settings."""

import dataclasses
import functools
from typing import Any

from ..config import Config, InputError
from ..papers import PAPERS, STUDIES, Study


@dataclasses.dataclass(frozen=True)
class Control:
    """How one setting is shown, and which values the explorer lets it have.

    **Fields:**

    - `shape`: `"slider"`, `"number"`, `"bars"` (a slider per entry of a list), `"choice"` or
      `"flag"`.
    - `low`, `high`, `step`: the range; for bars that of each entry.
    - `log`: whether equal ratios are equally far apart.
    - `whole`: whether only whole numbers are allowed.
    - `choices`: the values and their labels, for a choice.
    """

    label: str
    words: str
    shape: str = "slider"
    low: float | None = None
    high: float | None = None
    step: float | None = None
    log: bool = False
    whole: bool = False
    choices: tuple[tuple[str, str], ...] | None = None

    def data(self) -> dict[str, Any]:
        """The control as plain data."""
        data = dataclasses.asdict(self)
        if self.choices is not None:
            data["choices"] = [{"value": value, "label": label} for value, label in self.choices]
        return data


@functools.cache
def presets() -> tuple[Study, ...]:
    """The studies that the explorer offers, paper after paper, each in its order."""
    offered = [check_controls(study) for study in STUDIES.values() if study.order is not None]
    places = list(PAPERS)
    return tuple(sorted(offered, key=lambda study: (places.index(study.paper), study.order)))


def picture_of(study: Study) -> str:
    """The name of the picture of a study in `static/presets`."""
    return f"{study.id.replace('/', '-')}.svg"


def check_controls(study: Study) -> Study:
    """The study itself; an `InputError` if it names a control that its config does not have."""
    config = study.config
    unknown = [key for key in study.controls if key not in CONTROLS or not _has(config, key)]
    if unknown:
        raise InputError(f"`{study.id}`: `study.controls` names `{unknown[0]}`, not a setting.")
    return study


def _has(config: Config, key: str) -> bool:
    section, _, name = key.rpartition(".")
    return name in type(getattr(config, section) if section else config).model_fields


def _range(label: str, words: str, low: float, high: float, step: float, **more: Any) -> Control:
    return Control(label, words, low=low, high=high, step=step, **more)


def _ratio(label: str, words: str, low: float, high: float, **more: Any) -> Control:
    """A slider on a logarithmic scale; a key press changes its value by this share."""
    return Control(label, words, low=low, high=high, step=0.01, log=True, **more)


def _count(label: str, words: str, low: int, high: int, log: bool = False) -> Control:
    return Control(label, words, low=low, high=high, step=1, log=log, whole=True)


def _choice(label: str, words: str, *choices: tuple[str, str]) -> Control:
    return Control(label, words, "choice", choices=choices)


CONTROLS: dict[str, Control] = {
    "seed": Control(
        "Seed",
        "Draws other initial weights, and other sequences where sequences are drawn.",
        "number",
        low=0,
        high=2**32 - 1,
        step=1,
        whole=True,
    ),
    "task.eigenvalues": Control(
        "Eigenvalues of the inputs",
        "The variance of the inputs along each principal component, one bar per dimension.",
        "bars",
        low=0.02,
        high=3.0,
        step=0.01,
    ),
    "task.context": _count(
        "Context length N", "How many labelled pairs a sequence has.", 2, 2000, log=True
    ),
    "task.noise": _range("Label noise", "The variance of the noise on a label.", 0, 2, 0.01),
    "task.prior_variance": _ratio(
        "Prior variance", "The variance of each entry of the task vector.", 0.01, 10
    ),
    "task.fraction": _range(
        "Share of fresh tasks",
        "The share of sequences with a new task vector; all others have the same, fixed one.",
        0,
        1,
        0.01,
    ),
    "task.signal": Control(
        "Signal of each task",
        "The variance of each entry of the task vector, one bar per task.",
        "bars",
        low=0.05,
        high=4.0,
        step=0.05,
    ),
    "task.inputs": _count("Input dimension D", "How many coordinates an input has.", 1, 32),
    "task.variance": _range(
        "Variance of the function", "The variance of the labels without noise.", 0, 4, 0.05
    ),
    "task.sparsity": _count("Relevant inputs", "How many inputs the labels depend on.", 1, 32),
    "task.degree": _count("Hermite degree", "The degree of the nonlinear part.", 2, 12),
    "task.kind": _choice(
        "Task",
        "What the labels are as a function of the inputs.",
        ("linear_regression", "linear regression"),
        ("in_context_in_weight", "fresh and fixed tasks mixed"),
        ("multi_task", "several tasks"),
        ("quadratic", "quadratic functions"),
        ("sparse", "sparse regression"),
        ("two_layer_relu", "two-layer ReLU networks"),
        ("decision_tree", "decision trees"),
        ("hermite", "linear plus Hermite"),
    ),
    "model.kind": _choice(
        "Attention",
        "How the weights of the heads are parametrised.",
        ("merged", "merged key-query"),
        ("separate", "separate key and query"),
        ("two_layer", "two-layer linear network"),
        ("convolutional", "convolutional linear networks"),
        ("structured", "ω and μ per head"),
        ("factored", "Q, K, V and O"),
        ("stack", "several layers"),
        ("multi_merged", "several labels, merged"),
        ("multi_factored", "several labels, Q, K, V and O"),
        ("multi_structured", "several labels, ω and μ"),
        ("multi_blind", "several labels, keys without labels"),
        ("multi_spectral", "decomposable heads"),
    ),
    "model.activation": _choice(
        "Softmax or linear",
        "What turns scores into attention.",
        ("linear", "linear"),
        ("softmax", "softmax"),
    ),
    "model.heads": _count("Heads H", "How many heads attend in parallel.", 1, 16),
    "model.rank": _count("Rank R", "How many keys and queries each head has.", 1, 32),
    "model.scale": _ratio(
        "Initialisation scale",
        "The size of the initial weights: the loss has plateaus only if they are small.",
        1e-6,
        10,
    ),
    "model.scheme": _choice(
        "Start",
        "How the initial weights are drawn.",
        ("gaussian", "Gaussian"),
        ("balanced", "balanced"),
        ("identity", "identity"),
        ("paper", "as in the paper"),
        ("default", "default of the layer"),
        ("small_identity", "small identity"),
        ("opposite", "opposite pair"),
        ("random", "random"),
        ("distinct", "head h ahead on task h"),
    ),
    "model.form": _choice(
        "Blocks",
        "Whether blocks that theory sets to zero are trained as well.",
        ("reduced", "without these blocks"),
        ("full", "all blocks"),
    ),
    "model.per_coordinate": Control(
        "ω for each coordinate", "Whether a head has a separate ω for every coordinate.", "flag"
    ),
    "model.self_attention": Control(
        "Query attends to itself", "Whether the query is among the keys.", "flag"
    ),
    "model.weights": _choice(
        "What is trained",
        "The numbers ω and μ, their factors, or whole matrices.",
        ("balanced", "ω and μ"),
        ("factors", "their two factors"),
        ("matrices", "the matrices K, Q, V, O"),
        ("tokens", "these, with the blocks that are zero"),
    ),
    "model.omega": _ratio("Largest initial ω", "The strongest initial attention.", 1e-4, 1),
    "model.spread": _range(
        "Spread of initial ω",
        "How far below the largest an initial ω may lie, as a share.",
        0,
        0.99,
        0.01,
    ),
    "model.mu": _ratio("Initial μ", "The initial output weight.", 1e-4, 1),
    "model.width": _count("Width of a head", "The size of keys, queries and values.", 1, 64),
    "risk.kind": _choice(
        "What is minimised",
        "The population loss, an approximation of it, or the loss on sequences.",
        ("best", "the best available"),
        ("exact", "population, exact"),
        ("large_context", "population, long contexts"),
        ("first_order", "population, first order in 1/N"),
        ("dataset", "a fixed data set"),
        ("minibatch", "batches of a data set"),
        ("sampled", "fresh sequences"),
    ),
    "risk.sequences": _count(
        "Training sequences", "How many sequences the data set has.", 10, 20_000, log=True
    ),
    "risk.batch": _count("Batch", "Fresh sequences at every step.", 2, 4096, log=True),
    "flow.kind": _choice(
        "Training",
        "How the weights move.",
        ("gradient_flow", "gradient flow"),
        ("gradient_descent", "gradient descent"),
        ("sgd", "SGD"),
        ("adam", "Adam"),
    ),
    "flow.end": _ratio("End", "The last time of the flow.", 1, 1e7),
    "flow.learning_rate": _ratio("Learning rate", "The size of a step.", 1e-5, 1),
    "flow.steps": _count("Steps", "How many steps are taken.", 10, 200_000, log=True),
}
