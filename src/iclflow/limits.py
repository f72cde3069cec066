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
# Stacks of linear attention on white inputs apply a polynomial of this degree at most: its Wishart
# moments take two seconds, once.
MAX_DEGREE = 40
# With other inputs, the most layers of diagonal and of full matrices, and the same with GD++. One
# more layer would take a table of 10⁵ terms instead of 6000, and 10⁴ matrix products instead of
# a hundred.
MAX_DIAGONAL_LAYERS, MAX_FULL_LAYERS = 4, 2
MAX_MOVING_DIAGONAL_LAYERS, MAX_MOVING_FULL_LAYERS = 2, 1
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


StackMethod = Literal["spectrum", "partitions", "words"]


class StackFacts(NamedTuple):
    """The facts that decide which exact risk a stack of linear attention has.

    **Fields:**

    - `weights`: what the matrix of a layer can be.
    - `depth`: the number of layers.
    - `moving`: whether layers move the inputs too (GD++).
    - `attended`: whether the query is a key.
    - `regression`: whether the task is linear regression with one label.
    - `white`, `diagonal`: whether the input covariance is a multiple of the identity, or diagonal.
    """

    weights: Literal["scalar", "diagonal", "full"]
    depth: int
    moving: bool
    attended: bool
    regression: bool
    white: bool
    diagonal: bool

    @property
    def degree(self) -> int:
        """The degree in S of the polynomial that the stack applies."""
        return (3**self.depth - 1) // 2 if self.moving else self.depth

    @property
    def method(self) -> StackMethod | None:
        """How the exact risk is computed; None if there is none.

        Numbers on white inputs: from the spectrum of a Wishart matrix. What is diagonal with the
        input covariance: from a table over set partitions. Anything else: word by word.
        """
        if self.attended or not self.regression:
            return None
        if self.weights == "scalar" and self.white:
            return "spectrum" if self.degree <= MAX_DEGREE else None
        if self.depth <= self._most(MAX_DIAGONAL_LAYERS, MAX_MOVING_DIAGONAL_LAYERS):
            if self.weights == "scalar" or self.weights == "diagonal" and self.diagonal:
                return "partitions"
        most = self._most(MAX_FULL_LAYERS, MAX_MOVING_FULL_LAYERS)
        return "words" if self.depth <= most else None

    @property
    def words(self) -> str:
        """Where exact risks exist for such stacks, for a sentence."""
        if self.attended:
            return "stacks whose query is attended"
        kind = "GD++ stacks" if self.moving else "stacks"
        diagonal = self._most(MAX_DIAGONAL_LAYERS, MAX_MOVING_DIAGONAL_LAYERS)
        full = self._most(MAX_FULL_LAYERS, MAX_MOVING_FULL_LAYERS)
        white = 4 if self.moving else MAX_DEGREE
        return (
            f"{kind} of {self.depth} layers like these (numbers on white inputs have one up to "
            f"{white} layers, what is diagonal with the input covariance up to {diagonal}, other "
            f"matrices up to {full})"
        )

    def _most(self, plain: int, moving: int) -> int:
        return moving if self.moving else plain


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
    - `stack`: of a stack of linear attention, the facts on it.
    """

    form: Literal["bilinear", "cubic", "general"]
    dim: int
    moments: bool
    regression: bool
    blind: bool
    scalar: bool
    blocks: bool
    stack: StackFacts | None = None


def find_kinds(facts: RiskFacts) -> tuple[str, ...]:
    """The kinds of risk that exist, best first."""
    fits = facts.form == "bilinear" or (
        facts.form == "cubic" and feature_count("cubic", facts.dim) <= MAX_FEATURES
    )
    steps = facts.stack is not None and facts.stack.method is not None
    exists = {
        "exact": facts.moments and fits or facts.scalar or facts.blocks or steps,
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
