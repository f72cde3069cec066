"""What a config must have for claims on softmax attention to be about its run, in words."""

import numpy as np

from ... import theory
from ...config import Config
from ...errors import Refusal
from .. import Need
from .._needs import regression, scheme


def softmax_attention(*kinds: str) -> Need:
    """Softmax attention over the context alone, on the isotropic task of the paper."""

    def need(config: Config) -> str | None:
        model, words = config.model, " or ".join(kinds)
        if model.kind not in kinds:
            return f'is about {words} softmax attention: `model.kind` = "{model.kind}"'
        if not model.softmax:
            return 'is about softmax attention: `model.activation` = "linear"'
        if getattr(model, "self_attention"):
            return "is about attention over the context alone: `model.self_attention` = true"
        if config.task.kind != "linear_regression":
            return f'is about linear regression: `task.kind` = "{config.task.kind}"'
        try:
            theory.Setting.of(regression(config))
        except Refusal as error:
            return f"is about the isotropic task: {str(error).rstrip('.')}{_remedy(config)}"
        return None

    return need


def _remedy(config: Config) -> str:
    """The settings that make a task isotropic, if it is not."""
    task = regression(config)
    given = {
        "task.eigenvalues": (task.covariance, 1.0, "1 each"),
        "task.prior_variance": (task.weight_second_moment, 1 / task.dim, f"1/{task.dim}"),
    }
    wrong = [
        f"`{name}` = {words}"
        for name, (matrix, value, words) in given.items()
        if not np.allclose(np.asarray(matrix), value * np.eye(task.dim), rtol=0, atol=1e-10)
    ]
    return f" (give {' and '.join(wrong)})" if wrong else ""


def with_heads(least: int, most: int | None = None) -> Need:
    """From `least` to `most` heads; without `most`, any number from `least` on."""

    def need(config: Config) -> str | None:
        count = config.model.heads
        if least <= count <= (most or count):
            return None
        wanted = f"{least}" if most == least else f"{least} or more"
        return f"is about {wanted} head{'s' if least > 1 else ''}: `model.heads` = {count}"

    return need


def any_population(config: Config) -> str | None:
    """Training on the population, exactly or on fresh sequences."""
    if config.exact or config.sampled:
        return None
    return f'is about the population risk: `risk.kind` = "{config.risk.kind}"'


def followed_risk(config: Config) -> str | None:
    """A risk whose flow of opposite heads theory can follow."""
    if config.exact or config.risk.kind == "large_context":
        return None
    return f'is about the exact or the large-context risk: `risk.kind` = "{config.risk.kind}"'


def one_number(config: Config) -> str | None:
    """One ω per head."""
    if getattr(config.model, "per_coordinate", False):
        return "is about heads with one ω: `model.per_coordinate` = true"
    return None


FREE = softmax_attention("factored", "merged")
ANY = softmax_attention("structured", "factored", "merged")
PAIR = (softmax_attention("structured"), one_number, with_heads(2, 2), scheme("opposite"))
