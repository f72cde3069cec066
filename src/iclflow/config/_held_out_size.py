"""The size of the test set of a run, and the pieces in which it is drawn and evaluated."""

from typing import TYPE_CHECKING, NamedTuple

from ._task import LinearRegressionTask, MultiTask

if TYPE_CHECKING:
    from ._config import Config

# Sequences of a test set: with linear attention as a control variate, and without.
COMPARED = 16_384
"""How many sequences a test set has if an exact risk stands beside it.

**Example:**

```pycon
>>> icl.config.COMPARED
16384
```
"""
ALONE = 32_768
"""How many sequences a test set has if it is the only measure of a run.

**Example:**

```pycon
>>> icl.config.ALONE
32768
```
"""
# At most this many numbers in all, but at least this many sequences.
_LARGEST, _FEWEST = 2**27, 4096
# Drawing takes four times the memory of what is drawn: a set of more numbers than the first is
# drawn in blocks of the second.
_DRAWN_AT_ONCE, _BLOCK = 2**26, 2**24
# Numbers in memory while predictions are computed: with more than the first, the set is evaluated
# in parts of the second. The bounds are far above what most runs need, because sums over other
# parts round differently.
_LOOKED_AT_ONCE, _PART = 2**27, 2**26


class HeldOutSize(NamedTuple):
    """The size of a test set.

    **Fields:**

    - `count`: the number of sequences.
    - `blocks`: how many blocks they are drawn and stored in.
    - `parts`: how many parts each block is evaluated in.

    **Example:**

    ```pycon
    >>> config = icl.papers.study("linear/staircase")
    >>> icl.config.HeldOutSize.of(config, 10_000).count
    10000
    ```
    """

    count: int
    blocks: int
    parts: int

    @staticmethod
    def of(config: "Config", wanted: int) -> "HeldOutSize":
        """The size for a run that needs `wanted` sequences."""
        count = max(_FEWEST, min(_LARGEST // _numbers(config), wanted))
        stored, looked = stored_numbers(config), predicted_numbers(config)
        if count * stored > _DRAWN_AT_ONCE:
            block = max(1, min(_BLOCK // stored, _PART // looked))
            blocks = -(-count // block)
            return HeldOutSize(blocks * block, blocks, 1)
        if count * looked <= _LOOKED_AT_ONCE:
            return HeldOutSize(count, 1, 1)
        return HeldOutSize(count, 1, -(-count // max(1, _PART // looked)))

    @property
    def at_once(self) -> int:
        """How many sequences are predicted together."""
        return -(-self.count // (self.blocks * self.parts))


def stored_numbers(config: "Config") -> int:
    """The numbers in one sequence."""
    return (config.task.longest_context + 1) * (config.task.dim + config.task.labels)


def predicted_numbers(config: "Config") -> int:
    """The estimated numbers in memory for one fresh sequence while it is predicted."""
    alone = product_numbers(config) if in_lanes(config) else stored_predicted_numbers(config)
    return alone + posterior_numbers(config)


def stored_predicted_numbers(config: "Config") -> int:
    """The same for one sequence of a data set."""
    model, tokens = config.model, config.task.longest_context + 1
    if model.layers:  # scores between all tokens, and their softmax
        return 2 * model.heads * tokens**2 + 4 * stored_numbers(config)
    if model.bilinear:  # all heads together are one matrix
        return 2 * stored_numbers(config)
    # Values, scores, and their softmax.
    return 2 * stored_numbers(config) + 4 * model.heads * tokens * config.task.labels


def product_numbers(config: "Config") -> int:
    """The same for a fresh sequence in lanes: products of every head with every entry of every
    token, as many numbers for their sums, and with several labels the products of their pairs."""
    task = config.task
    labels = 2 * (task.labels**2 - 1) * (task.longest_context + 1 + task.dim)
    return 2 * config.model.heads * stored_numbers(config) + labels


def posterior_numbers(config: "Config") -> int:
    """The numbers that the posterior mean of a query label takes: products of all pairs of inputs
    of every token, and the equations for their sums."""
    task = config.task
    noisy = isinstance(task, LinearRegressionTask) and task.noise > 0
    return (task.longest_context + 5) * task.dim**2 if noisy and not config.model.label_blind else 0


def in_lanes(config: "Config") -> bool:
    """Whether fresh sequences are computed side by side in lanes: attention on linear regression,
    with one label or with labels that are averaged over."""
    task, model = config.task, config.model
    attention = model.kind not in ("two_layer", "convolutional", "stack")
    averaged = isinstance(task, MultiTask) and model.label_blind
    return attention and (isinstance(task, LinearRegressionTask) or averaged)


def _numbers(config: "Config") -> int:
    """The numbers per sequence that limit how many sequences there are."""
    task, model = config.task, config.model
    tokens = task.longest_context + 1
    scores = model.heads * tokens * max(1, model.layers * tokens)
    return stored_numbers(config) + scores + task.function_size
