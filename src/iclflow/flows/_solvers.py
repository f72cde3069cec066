"""The two solvers of gradient flow: Tsit5, explicit, and Rodas5P, implicit.

They have the interface of diffrax, and its step size controller. Their steps are our own:

- `diffrax.Tsit5` loops over its stages and keeps them in one buffer, which it reads as a whole for
  every stage. Written out, the stages of a step become a few fused loops: 1.4 times as fast on 72
  weights, twice as fast on half a million.
- Rodas5P (G. Steinebach, "Construction of Rosenbrock–Wanner method Rodas5P", BIT 63 (2023) 27) is
  a Rosenbrock method, and diffrax has none. Its implicit methods (Kvaerno5, KenCarp5) iterate, and
  reject a step when the iteration does not converge. A Rosenbrock step takes eight velocities, one
  Jacobian and one factorisation.

Both sum their stages in an order that stored runs depend on to the last bit.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from ..limits import JACOBIAN_NUMBERS
from ..models import steps_of

RealScalarLike = float | Array | np.ndarray

# Rodas5P. Coefficients of derivatives by time are left out: the velocity of a gradient flow does
# not depend on time.
_GAMMA = 0.21193756319429014
# The last three stages share their first coefficients.
_LAST = (
    -7.502846399306121, 2.561846144803919, -11.627539656261098, -0.18268767659942256,
    0.030198172008377946,
)  # fmt: skip
# Stage i evaluates the velocity at y₀ + Σ_j a_ij k_j.
_PLACES = (
    (),
    (3.0,),
    (2.849394379747939, 0.45842242204463923),
    (-6.954028509809101, 2.489845061869568, -10.358996098473584),
    (2.8029986275628964, 0.5072464736228206, -0.3988312541770524, -0.04721187230404641),
    _LAST,
    (*_LAST, 1.0),
    (*_LAST, 1.0, 1.0),
)
# Earlier stages add Σ_j c_ij k_j / h to it.
_MEMORY = (
    (),
    (-14.155112264123755,),
    (-17.97296035885952, -2.859693295451294),
    (147.12150275711716, -1.41221402718213, 71.68940251302358),
    (165.43517024871676, -0.4592823456491126, 42.90938336958603, -5.961986721573306),
    (
        24.854864614690072, -3.0009227002832186, 47.4931110020768, 5.5814197821558125,
        -0.6610691825249471,
    ),
    (
        30.91273214028599, -3.1208243349937974, 77.79954646070892, 34.28646028294783,
        -19.097331116725623, -28.087943162872662,
    ),
    (
        37.80277123390563, -3.2571969029072276, 112.26918849496327, 66.9347231244047,
        -40.06618937091002, -54.66780262877968, -9.48861652309627,
    ),
)  # fmt: skip


class _AbstractSolver(diffrax.AbstractAdaptiveSolver):
    """What both solvers answer to diffrax.

    **Fields:**

    - `keeps_velocity`: whether the state of the solver is the velocity at the end of the last step.
    """

    term_structure: ClassVar = diffrax.ODETerm
    interpolation_cls: ClassVar = diffrax.LocalLinearInterpolation
    keeps_velocity: eqx.AbstractClassVar[bool]

    def order(self, terms: diffrax.AbstractTerm) -> int:
        return 5

    def func(
        self, terms: diffrax.AbstractTerm, t0: RealScalarLike, y0: PyTree[Array], args: Any
    ) -> PyTree[Array]:
        return terms.vf(t0, y0, args)

    def init(
        self,
        terms: diffrax.AbstractTerm,
        t0: RealScalarLike,
        t1: RealScalarLike,
        y0: PyTree[Array],
        args: Any,
    ) -> PyTree[Array] | None:
        return terms.vf(t0, y0, args) if self.keeps_velocity else None


class Tsit5(_AbstractSolver):
    """The explicit solver of gradient flow."""

    keeps_velocity: ClassVar[bool] = True

    def step(
        self,
        terms: diffrax.AbstractTerm,
        t0: RealScalarLike,
        t1: RealScalarLike,
        y0: PyTree[Array],
        args: Any,
        solver_state: PyTree[Array] | None,
        made_jump: Any,
    ):
        tableau = diffrax.Tsit5.tableau
        y1, length, slopes = y0, t1 - t0, [solver_state]
        for row, fraction in zip(tableau.a_lower, tableau.c):
            y1 = jax.tree.map(jnp.add, y0, _combine(length, row, slopes))
            slopes.append(terms.vf(t0 + fraction * length, y1, args))
        # The last stage is the end of the step: its velocity is the first of the next step.
        error = _combine(length, tableau.b_error, slopes)
        return y1, error, {"y0": y0, "y1": y1}, slopes[-1], diffrax.RESULTS.successful


class Rodas5P(_AbstractSolver):
    """The implicit solver of gradient flow; `lanes` is the number of runs side by side."""

    lanes: int = eqx.field(static=True, default=1)

    keeps_velocity: ClassVar[bool] = False

    def step(
        self,
        terms: diffrax.AbstractTerm,
        t0: RealScalarLike,
        t1: RealScalarLike,
        y0: PyTree[Array],
        args: Any,
        solver_state: PyTree[Array] | None,
        made_jump: Any,
    ):
        start, rebuild = ravel_pytree(y0)
        length = t1 - t0
        velocity = lambda y: ravel_pytree(terms.vf(t0, rebuild(y), args))[0]
        slopes = _jacobian(velocity, start, JACOBIAN_NUMBERS // self.lanes)
        matrix = jnp.eye(start.size) / (_GAMMA * length) - slopes
        factors = jax.scipy.linalg.lu_factor(matrix)
        places, memory = _square(_PLACES), _square(_MEMORY)

        # A loop, unlike in Tsit5: the velocity of a stiff risk can be a large program to compile.
        def stage(i: Array | int, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            stages, _ = carry
            end = start + places[i] @ stages
            slope = velocity(end) + memory[i] @ stages / length
            return stages.at[i].set(jax.scipy.linalg.lu_solve(factors, slope)), end

        empty = jnp.zeros((len(_PLACES), start.size), start.dtype)
        stages, end = jax.lax.fori_loop(0, len(_PLACES), stage, (empty, start))
        # The last stage is the difference between the solutions of order five and four.
        y1, error = rebuild(end + stages[-1]), rebuild(stages[-1])
        return y1, error, {"y0": y0, "y1": y1}, None, diffrax.RESULTS.successful


def _combine(length: RealScalarLike, weights: np.ndarray, slopes: list) -> PyTree[Array]:
    """length · Σ weight · slope."""
    factors = weights.tolist()
    return jax.tree.map(lambda *ks: length * sum(f * k for f, k in zip(factors, ks)), *slopes)


def _jacobian(velocity: Callable, start: Float[Array, " n"], numbers: int) -> Float[Array, "n n"]:
    """The derivative of `velocity`, computed so that no array has more than `numbers` entries."""
    columns = numbers // _largest_array(jax.make_jaxpr(velocity)(start))
    if columns >= start.size:
        return jax.jacfwd(velocity)(start)

    def column(index: Array) -> Float[Array, " n"]:
        direction = jnp.zeros_like(start).at[index].set(1)
        return jax.jvp(velocity, (start,), (direction,))[1]

    return jax.lax.map(column, jnp.arange(start.size), batch_size=max(1, columns)).T


def _largest_array(program: Any) -> int:
    """The number of entries of the largest array that a program (a jaxpr) makes."""
    arrays = [made.aval for step in steps_of(program) for made in step.outvars]
    return max([1, *(array.size for array in arrays if hasattr(array, "size"))])


def _square(rows: tuple[tuple[float, ...], ...]) -> Array:
    return jnp.asarray([[*row, *[0.0] * (len(rows) - len(row))] for row in rows])
