"""How many operations a program takes for each lane: counted in the program, not estimated."""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

# Names for what is there already.
_FREE = {
    "broadcast_in_dim", "copy", "dynamic_slice", "gather", "iota",
    "reshape", "slice", "squeeze", "stop_gradient",
}  # fmt: skip
_FUNCTIONS = {"cos", "div", "exp", "exp2", "log", "rsqrt", "sin", "sqrt", "tanh"}


class Operations(NamedTuple):
    """Operations on each lane.

    **Fields:**

    - `floats`: a product that is added to something counts once, with the addition.
    - `integers`: so do two exclusive ors in a row.
    - `functions`: exponentials, logarithms, roots, sines, inverses.
    """

    floats: float = 0
    integers: float = 0
    functions: float = 0

    @property
    def all(self) -> float:
        return sum(self)

    def times(self, factor: float) -> "Operations":
        return Operations(*(factor * count for count in self))

    def plus(self, other: "Operations") -> "Operations":
        return Operations(*(one + two for one, two in zip(self, other)))


def count_operations(function: Callable, lanes: jax.Array, *arguments) -> Operations:
    """The operations of `function(lanes, *arguments)` on each lane.

    Loops must have a length that is known; what is computed once for all lanes is not counted.
    """
    return _counted(jax.make_jaxpr(function)(lanes, *arguments).jaxpr, lanes.shape)


def _counted(program: Any, shape: tuple[int, ...]) -> Operations:
    equations = _needed(program)
    uses = Counter(id(name) for equation in equations for name in equation.invars)
    uses.update(id(name) for name in program.outvars)
    # Results that the next operation can take in: products, and single exclusive ors.
    open_results: dict[int, str] = {}
    found, zeros = Operations(), set()
    for equation in equations:
        inner, rounds = _inside(equation)
        if inner is not None:
            found = found.plus(_counted(inner, shape).times(rounds))
            continue
        (result,) = equation.outvars
        name, kind = equation.primitive.name, result.aval.dtype.kind
        if _is_zero(equation, zeros):
            zeros.add(id(result))
        if result.aval.shape != shape or name in _FREE or _is_renaming(equation):
            continue
        if name == "add" and any(id(x) in zeros for x in equation.invars):
            continue
        wanted = {"add": "mul", "sub": "mul", "xor": "xor"}.get(name)
        taken = [id(x) for x in equation.invars if wanted and open_results.get(id(x)) == wanted]
        if taken and kind in ("f" if wanted == "mul" else "ui"):
            del open_results[taken[0]]
            continue
        if name in ("mul", "xor") and uses[id(result)] == 1:
            open_results[id(result)] = name
        if name in _FUNCTIONS:
            found = found.plus(Operations(functions=1))
        elif kind == "f":
            found = found.plus(Operations(floats=1))
        else:
            found = found.plus(Operations(integers=1))
    return found


def _needed(program: Any) -> list[Any]:
    """The equations that what comes out depends on: compilers leave out the rest."""
    wanted, kept = {id(name) for name in program.outvars}, []
    for equation in reversed(program.eqns):
        if wanted.intersection(map(id, equation.outvars)):
            kept.append(equation)
            wanted.update(map(id, equation.invars))
    return kept[::-1]


def _inside(equation: Any) -> tuple[Any, int]:
    """The program that an equation runs, and how often; None where it is an operation."""
    params = equation.params
    if equation.primitive.name == "scan":
        return params["jaxpr"].jaxpr, params["length"]
    if equation.primitive.name == "while":
        raise ValueError("The program has a loop whose length is not known when it is traced.")
    inner = params.get("jaxpr", params.get("call_jaxpr"))
    return getattr(inner, "jaxpr", inner), 1


def _is_renaming(equation: Any) -> bool:
    """Whether this picks the upper word of a product of 64 bits, which is a register of its own, or
    reads the same bits as another kind of whole number."""
    name, result = equation.primitive.name, equation.outvars[0].aval.dtype
    if name == "convert_element_type":
        return (result.kind == "f") == (equation.invars[0].aval.dtype.kind == "f")
    return name == "shift_right_logical" and result.itemsize == 8


def _is_zero(equation: Any, zeros: set[int]) -> bool:
    """Whether this makes an array of zeros."""
    if equation.primitive.name not in _FREE | {"convert_element_type"}:
        return False
    source = equation.invars[0] if equation.invars else None
    value = getattr(source, "val", None)
    return id(source) in zeros or bool(value is not None and np.ndim(value) == 0 and value == 0)
