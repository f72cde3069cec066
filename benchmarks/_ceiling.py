"""How near the fused pass comes to what the machine could do at most."""

import jax
import jax.numpy as jnp
import jax.random as jr

from iclflow.models import Attention
from iclflow.risks import SampledRisk
from iclflow.risks.fused import Functions, Numbers, Spec, lanes_of, words_of

from ._operations import Operations, count_operations
from ._peak import Peak, streaming_rate
from ._row import Row, Timing

# Times that Adam's update touches a weight: it, its gradient and both moments are read; it, its
# gradient and both moments are written.
_TOUCHED = 8


def ceiling_rows(
    group: str, model: Attention, risk: SampledRisk, bare: Timing, whole: Timing
) -> list[Row]:
    """Tokens a second of the pass, beside the most that its operations allow; and steps a second,
    beside the most that the bytes of the weights allow.

    **Arguments:**

    - `bare`, `whole`: seconds of a pass and of a step of training of one model.
    """
    law = risk.white
    assert law is not None
    spec = law.spec(model, True, risk.batch)
    numbers = law.numbers(words_of(jr.key(0)), *law.circuits(model, True), True)
    operations, tokens = operations_of_a_token(spec, numbers), spec.batch * spec.longest
    words = "{:.0f} of floats, {:.0f} of whole numbers, {:.0f} functions".format(*operations)
    rate = 1e-9 * tokens / bare.median
    rows = [
        Row(group, "operations of a token", operations.all, note=f"counted: {words}"),
        Row(group, "the bare pass", rate, "·10⁹ tokens/s"),
    ]
    peak, name = Peak.here(), "the most that operations allow"
    if peak is None:
        rows.append(Row(group, name, None, note="The clock of this device is not known."))
    else:
        most = 1e-9 / peak.seconds(operations)
        rows += [
            Row(group, name, most, "·10⁹ tokens/s", note=peak.words),
            Row(group, "the bare pass ÷ the most that operations allow", 100 * rate / most, "%"),
        ]
    weights = sum(leaf.nbytes for leaf in jax.tree.leaves(model))
    stream = streaming_rate()
    allowed = 1e-6 * stream / (_TOUCHED * weights)
    note = f"{_TOUCHED} × {weights} bytes a step, at {1e-9 * stream:.3g}·10⁹ bytes/s"
    share = 100 * 1e-6 / whole.median / allowed
    return [
        *rows,
        Row(group, "the most that bytes allow", allowed, "·10⁶ steps/s", note=note),
        Row(group, "whole steps ÷ the most that bytes allow", share, "%"),
    ]


def operations_of_a_token(spec: Spec, numbers: Numbers) -> Operations:
    """Those of a fused pass over a sequence, shared among its tokens."""
    # Each of them one function, as they are on a GPU.
    functions = Functions(*[jnp.sqrt] * 4)
    program = lambda lanes, numbers: lanes_of(spec, numbers, lanes, functions).products(spec)
    counted = count_operations(program, jnp.arange(8, dtype=jnp.uint32), numbers)
    return counted.times(1 / spec.longest)
