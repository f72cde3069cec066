"""The static description of a fused pass, and the place of each of its random numbers."""

import math
from typing import Literal, NamedTuple

# Up to so many normals per token, tokens form groups that use every normal. With more, groups would
# be too long to unroll, and a few unused normals are a small share.
_FEW = 12
# The most sums that a program on a GPU makes itself; more are left to matrix products.
_MOST_SUMS = 400


# What computes the pass on a GPU. "auto" is the fastest of those that were measured.
EngineName = Literal["auto", "triton", "triton_steps", "mosaic_gpu"]


class Spec(NamedTuple):
    """Everything about a pass that is not a number in an array.

    Inputs are white: the covariance of a task is moved into the circuits that act on them.

    **Fields:**

    - `dim`, `heads`, `labels`: D, H and J.
    - `drawn`: whether labels are drawn; else they are averaged over in closed form.
    - `reads_inputs`: whether values read inputs too, and not labels alone.
    - `diagonal`: whether the prior of every label has a diagonal covariance, given as a vector.
    - `contexts`: the lengths that a context can have.
    - `batch`: how many sequences.
    - `engine`: what computes the pass on a GPU.
    """

    dim: int
    heads: int
    labels: int
    drawn: bool
    reads_inputs: bool
    diagonal: bool
    contexts: tuple[int, ...]
    batch: int
    engine: EngineName = "auto"

    @property
    def entries(self) -> int:
        """The entries of a token that scores depend on: inputs, and labels if they are drawn."""
        return self.dim + self.labels * self.drawn

    @property
    def longest(self) -> int:
        return max(self.contexts)

    @property
    def header(self) -> int:
        """Normals before the tokens of a sequence: the query, then each task vector, then the noise
        of each query label."""
        return self.dim + self.drawn * self.labels * (self.dim + 1)

    @property
    def header_blocks(self) -> int:
        """Calls of the generator for these, four normals each."""
        return -(-self.header // 4)

    @property
    def slot(self) -> int:
        """Normals of a token: inputs, then label noise; many are filled up to whole calls."""
        return 4 * -(-self.entries // 4) if self.entries > _FEW else self.entries

    @property
    def group(self) -> int:
        """Tokens whose normals fill whole calls."""
        return 4 // math.gcd(4, self.slot)

    @property
    def group_blocks(self) -> int:
        return self.group * self.slot // 4

    @property
    def groups(self) -> int:
        return -(-self.longest // self.group)

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Heads two at a time, each also with itself."""
        return tuple((h, k) for h in range(self.heads) for k in range(h, self.heads))

    @property
    def slopes(self) -> int:
        """Entries of both circuits."""
        return self.heads * (self.entries * self.dim + self.labels * (self.dim + self.labels))


def has_few_sums(spec: Spec) -> bool:
    """Whether a program can make all sums over its lanes itself: of the loss and of all slopes."""
    return 1 + spec.slopes <= _MOST_SUMS
