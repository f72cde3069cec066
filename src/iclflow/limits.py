"""Which risks exist, and how far computations reach.

It needs only the standard library, because configs use it before JAX is loaded.
"""

from collections.abc import Collection
from typing import Literal, NamedTuple, get_args

# Moments of linear attention are square matrices with one row per feature: two of this size
# take 0.27 GB in float64. Beyond that, sampling is cheaper.
MAX_FEATURES = 4096
# The Bayes predictor of sparse regression weighs every possible set of coordinates.
MAX_SUPPORTS = 4096
# The implicit solver factorises a square matrix with one row per weight: with more weights than
# this that never pays.
MAX_IMPLICIT = 512
# Runs of an ensemble that a gradient flow advances side by side: their state should stay in a
# processor's cache.
FLOW_LANES = 64
# Attempted steps of a gradient flow in one chunk.
FLOW_TRIES = 512
# How often a descent evaluates a test set: each time it predicts thousands of sequences.
TEST_LOOKS = 400
# The largest array while columns of a Jacobian are computed together, over all runs side by side:
# 64 MiB in float64, and there are a few such arrays at a time. Most flows need far less.
JACOBIAN_NUMBERS = 2**23

# The kinds of risk, best first.
RiskKind = Literal["exact", "large_context", "first_order", "dataset", "minibatch", "sampled"]


class RiskFacts(NamedTuple):
    """The facts that decide which kinds of risk exist for a model on a task.

    **Fields:**

    - `form`: the degree of the model's prediction in the tokens, if it is a polynomial.
    - `dim`: the input dimension.
    - `moments`: whether the moments of the task's tokens are known in closed form.
    - `regression`: whether the task is linear regression, with one label or several.
    - `blind`: whether the model is softmax over the context alone, with weights that ignore labels.
    - `scalar`: whether it is also one number ω per head, one label, and an isotropic task.
    - `blocks`: whether it is also decomposable heads on the blocks of the task.
    """

    form: Literal["bilinear", "cubic", "general"]
    dim: int
    moments: bool
    regression: bool
    blind: bool
    scalar: bool
    blocks: bool


def find_kinds(facts: RiskFacts) -> tuple[str, ...]:
    """The kinds of risk that exist, best first."""
    fits = facts.form == "bilinear" or (
        facts.form == "cubic" and feature_count("cubic", facts.dim) <= MAX_FEATURES
    )
    exists = {
        "exact": facts.moments and fits or facts.scalar or facts.blocks,
        "large_context": facts.blind and facts.regression,
        "first_order": facts.scalar,
    }
    return tuple(kind for kind in get_args(RiskKind) if exists.get(kind, True))


def best_kind(kinds: Collection[str]) -> RiskKind:
    """The kind that `"best"` means; the other kinds are choices that only the user can make."""
    return "exact" if "exact" in kinds else "sampled"


def feature_count(form: Literal["bilinear", "cubic"], dim: int) -> int:
    """How many features linear attention is linear in; see `risks.FeatureLayout`."""
    return dim**2 if form == "bilinear" else dim * (dim + 1) * (dim + 2) // 2
