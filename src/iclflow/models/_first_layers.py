"""The lower part of a stack of layers."""

import dataclasses

from ..tasks import check_count
from ._fields import check_single
from ._linear_stack import AbstractLinearStack
from ._stack import AttentionStack


def first_layers(
    model: AttentionStack | AbstractLinearStack, count: int
) -> AttentionStack | AbstractLinearStack:
    """The first `count` layers of a stack or a loop, read out like the whole.

    **Example:**

    ```pycon
    >>> icl.models.first_layers(icl.ScalarStack.init(jr.key(0), dim=2, depth=3), 2).depth
    2
    ```
    """
    check_single(model)
    check_count("count", count, model.depth)
    fields = {field.name: field for field in dataclasses.fields(model)}
    weights = [name for name, field in fields.items() if not field.metadata.get("static")]
    # The leading axis of every weight is that of the layers, or 1 in a loop.
    kept = {name: getattr(model, name)[:count] for name in weights}
    return dataclasses.replace(model, depth=count, **kept)
