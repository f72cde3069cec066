"""How many sequences the test set of a run has, and in which pieces it is drawn and looked at."""

from typing import TYPE_CHECKING, NamedTuple

from ._task import LinearRegressionTask, MultiTask

if TYPE_CHECKING:
    from ._config import Config

# So many sequences where models are compared with linear attention, and where they cannot be.
COMPARED, ALONE = 16_384, 32_768
# Never more numbers than this in all, and never fewer sequences.
_LARGEST, _FEWEST = 2**27, 4096
# Drawing takes four times what is drawn: a set of more numbers is drawn in blocks of so many.
_DRAWN_AT_ONCE, _BLOCK = 2**26, 2**24
# Numbers that a prediction may take at a time, in single precision; more are taken in parts. These
# bounds are far above what most runs need, since another division rounds otherwise.
_LOOKED_AT_ONCE, _PART = 2**27, 2**26


class HeldOutSize(NamedTuple):
    """The size of a test set.

    **Fields:**

    - `count`: of the sequences.
    - `blocks`: in which they are drawn and stored.
    - `parts`: of each block, in which it is looked at.
    """

    count: int
    blocks: int
    parts: int

    @staticmethod
    def of(config: "Config", wanted: int) -> "HeldOutSize":
        """That of a run for which `wanted` sequences are enough."""
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
    """How many numbers one sequence has."""
    return (config.task.longest_context + 1) * (config.task.dim + config.task.labels)


def predicted_numbers(config: "Config") -> int:
    """About how many numbers one fresh sequence takes while it is predicted."""
    alone = product_numbers(config) if in_lanes(config) else stored_predicted_numbers(config)
    return alone + posterior_numbers(config)


def stored_predicted_numbers(config: "Config") -> int:
    """About how many numbers one sequence of a data set takes while it is predicted."""
    model, tokens = config.model, config.task.longest_context + 1
    if model.layers:  # scores between all tokens, and their softmax
        return 2 * model.heads * tokens**2 + 4 * stored_numbers(config)
    if model.bilinear:  # of all heads together there is one matrix
        return 2 * stored_numbers(config)
    # Values, scores, and their softmax.
    return 2 * stored_numbers(config) + 4 * model.heads * tokens * config.task.labels


def product_numbers(config: "Config") -> int:
    """Of the products of every head with every entry of every token, and as much for their sums:
    what a fresh sequence takes that lies beside others. Of several labels, also what each gives to
    each."""
    task = config.task
    labels = 2 * (task.labels**2 - 1) * (task.longest_context + 1 + task.dim)
    return 2 * config.model.heads * stored_numbers(config) + labels


def posterior_numbers(config: "Config") -> int:
    """Of the products of all pairs of inputs of every token, and of the equations for their sums,
    where the label of a query is replaced by its posterior mean."""
    task = config.task
    noisy = isinstance(task, LinearRegressionTask) and task.noise > 0
    return (task.longest_context + 5) * task.dim**2 if noisy and not config.model.label_blind else 0


def in_lanes(config: "Config") -> bool:
    """Whether fresh sequences lie side by side: attention on linear regression, with one label or
    with labels that are averaged over."""
    task, model = config.task, config.model
    attention = model.kind not in ("two_layer", "convolutional", "stack")
    averaged = isinstance(task, MultiTask) and model.label_blind
    return attention and (isinstance(task, LinearRegressionTask) or averaged)


def _numbers(config: "Config") -> int:
    """What decides how many sequences there are."""
    task, model = config.task, config.model
    tokens = task.longest_context + 1
    scores = model.heads * tokens * max(1, model.layers * tokens)
    return stored_numbers(config) + scores + task.function_size
