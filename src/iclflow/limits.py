"""Which risks exist, and how far computations reach.

It needs nothing but the standard library: configs ask the same questions before JAX is loaded.
"""

from collections.abc import Collection
from typing import Literal, NamedTuple, get_args

# Moments of linear attention are square matrices with a row for every feature: two of this size
# take 0.27 GB in float64; beyond, they are no bargain.
MAX_FEATURES = 4096
# The Bayes predictor of sparse regression weighs every possible set of coordinates.
MAX_SUPPORTS = 4096
# The implicit solver factorises a square matrix with a row for every weight: of more weights than
# this that never pays.
MAX_IMPLICIT = 512
# Runs of an ensemble that a gradient flow advances side by side: their state should stay in a
# processor's cache.
FLOW_LANES = 64
# Tries of a gradient flow between two looks at it.
FLOW_TRIES = 512
# How often a descent looks at a test set: each look predicts thousands of sequences.
TEST_LOOKS = 400
# Numbers that the largest array in a velocity may have for all columns of a Jacobian that are
# computed together, in all runs side by side: 64 MiB, and there are some such arrays at a time.
# Most flows need far less.
JACOBIAN_NUMBERS = 2**23

# The kinds of risk, best first.
RiskKind = Literal["exact", "large_context", "first_order", "dataset", "minibatch", "sampled"]


class RiskFacts(NamedTuple):
    """What decides which kinds of risk exist for a model on a task.

    **Fields:**

    - `form`: of the model: of which degree its prediction is in the tokens, if it is a polynomial.
    - `dim`: of the inputs.
    - `moments`: whether the moments of the task's tokens are known in closed form.
    - `regression`: whether the task is linear regression, with one label or several.
    - `blind`: whether the model is softmax over the context alone, whatever the labels are.
    - `scalar`: whether it is that with one number ω per head and one label, on an isotropic task.
    - `blocks`: whether it is that with decomposable heads, on the blocks that the task has.
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
    """What `"best"` stands for: the other kinds are choices that only the user can make."""
    return "exact" if "exact" in kinds else "sampled"


def feature_count(form: Literal["bilinear", "cubic"], dim: int) -> int:
    """How many features linear attention is linear in; see `risks.FeatureLayout`."""
    return dim**2 if form == "bilinear" else dim * (dim + 1) * (dim + 2) // 2
