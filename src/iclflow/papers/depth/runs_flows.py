"""Flows of matrices, of single directions and on rotated covariances, and losses at a covariance
that training did not have: exact risks and models, which know no theory.

Flows are few and small here: SciPy takes them faster than programs of whole flows are compiled.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.integrate
from jaxtyping import Array, Float

from ...models import AbstractLinearStack, DiagonalStack, FullStack, ScalarStack
from ...risks import risk
from ...tasks import LinearRegression
from .. import Lab, once
from .runs_levels import white_task

# A context that is infinite but for one part in a billion.
LONG = 10**9
# Eigenvalues of the inputs, and of the task vectors in the same directions.
VALUES, PRIOR = (0.8, 0.4), (1.0, 1.5)
Times = tuple[float, ...]


def _follow(
    loss: Callable[[Array], Array], start: Float[np.ndarray, "*shape"], times: Times
) -> Float[np.ndarray, "T *shape"]:
    """The flow dW/dt = −½ ∂L/∂W from `start`, at these times."""
    shape = start.shape
    slope = jax.jit(jax.grad(lambda flat: loss(flat.reshape(shape))))
    found = scipy.integrate.solve_ivp(
        lambda _, flat: -0.5 * np.asarray(slope(flat)), (0.0, times[-1]), start.ravel(), "LSODA",
        times, rtol=1e-10, atol=1e-13,
    )  # fmt: skip
    return found.y.T.reshape(len(times), *shape)


def _exact(
    task: LinearRegression, make: Callable[[Array], AbstractLinearStack], start: np.ndarray
) -> Callable[[Array], Array]:
    """The exact risk as a function of weights."""
    known = risk(task, make(jnp.asarray(start)), "exact")
    return lambda weights: known(make(weights))


class Isotropy(NamedTuple):
    """A matrix Γ over time.

    - `steps`: tr Γ/d; `beside`: the largest |Γ − (tr Γ/d) 1| at any time.
    """

    steps: Float[np.ndarray, " T"]
    beside: float

    @staticmethod
    def of(matrices: Float[np.ndarray, "T D D"]) -> "Isotropy":
        dim = matrices.shape[-1]
        steps = np.trace(matrices, axis1=1, axis2=2) / dim
        beside = np.max(np.abs(matrices - steps[:, None, None] * np.eye(dim)))
        return Isotropy(steps, float(beside))


@once
def matrix_flow(lab: Lab, dim: int, context: int, noise: float, times: Times) -> Isotropy:
    """The matrix of a loop of two layers from zero, on white inputs."""
    start = np.zeros((1, dim, dim))
    loss = _exact(white_task(noise, dim, context), lambda gamma: FullStack(gamma, 2), start)
    return Isotropy.of(_follow(loss, start, times)[:, 0])


@once
def large_flow(
    lab: Lab, dim: int, context: int, noise: float, times: Times
) -> Float[np.ndarray, " T"]:
    """The step of a loop of two layers from zero, on white inputs of many dimensions."""
    start = np.zeros(1)
    loss = _exact(white_task(noise, dim, context), lambda gamma: ScalarStack(gamma, dim, 2), start)
    return _follow(loss, start, times)[:, 0]


def long_task(angle: float = 0.0) -> LinearRegression:
    """Two directions at a context without end, the inputs turned by an angle."""
    turn = _turn(angle)
    return LinearRegression(
        covariance=turn @ np.diag(VALUES) @ turn.T,
        prior_covariance=np.diag(PRIOR),
        context=LONG,
        noisy_query=False,
    )


@once
def direction_flow(lab: Lab, layers: int, times: Times) -> Float[np.ndarray, " T"]:
    """The loss of a loop of diagonal matrices from zero."""
    start = np.zeros((1, 2))
    loss = _exact(long_task(), lambda gamma: DiagonalStack(gamma, layers), start)
    return np.array([float(loss(jnp.asarray(gamma))) for gamma in _follow(loss, start, times)])


# Of so many layers the limit is 1e-4 away.
DEEP = 10_000


@once
def deep_direction(lab: Lab, times: Times) -> Float[np.ndarray, " T"]:
    """The loss of one direction with ω = λ = 1 whose γ̇ = ωλ²(1 − λγ/L)^{2L−1}."""
    left = lambda gamma: 1 - gamma / DEEP
    found = scipy.integrate.solve_ivp(
        lambda _, gamma: left(gamma) ** (2 * DEEP - 1), (0.0, times[-1]), [0.0], "LSODA", times,
        rtol=1e-9, atol=1e-12,
    )  # fmt: skip
    return left(found.y[0]) ** (2 * DEEP)


@once
def trained_at_length(lab: Lab) -> Float[np.ndarray, "2 2"]:
    """Γ of one layer at infinite context, trained to the end from zero.

    It leaves no loss, so that loops of any depth have their only minimum there; of those the flow
    arrives as t^−½ alone, and this one exponentially.
    """
    start = np.zeros((1, 2, 2))
    loss = _exact(long_task(), lambda gamma: FullStack(gamma, 1), start)
    return _follow(loss, start, (200.0,))[-1, 0]


@once
def shifted_losses(lab: Lab, layers: int, angles: Times) -> Float[np.ndarray, " angles"]:
    """The exact loss of a trained loop on inputs that are turned by an angle."""
    loop = FullStack(jnp.asarray(trained_at_length(lab))[None], layers)
    tasks = [long_task(angle) for angle in angles]
    return np.array([float(risk(task, loop, "exact")(loop)) for task in tasks])


@once
def rotated_flow(lab: Lab, layers: int, times: Times) -> Isotropy:
    """The matrix of a loop from zero, where every context has inputs and tasks turned together by
    any angle; at infinite context."""
    # The loss is a trigonometric polynomial of twice the angle, of degree 2L + 2 at most: as many
    # angles on the half circle and one more average it exactly.
    count = 2 * layers + 3
    turns = np.array([_turn(np.pi * place / count) for place in range(count)])
    turned = lambda sizes: jnp.asarray(turns @ np.diag(sizes) @ turns.transpose(0, 2, 1))
    inputs, tasks = turned(VALUES), turned(PRIOR)

    def loss(gamma: Float[Array, "2 2"]) -> Float[Array, ""]:
        left = jnp.linalg.matrix_power(jnp.eye(2) - gamma @ inputs, layers)
        return jnp.mean(jnp.einsum("nab,nbc,ncd,nad->n", inputs, left, tasks, left))

    return Isotropy.of(_follow(loss, np.zeros((2, 2)), times))


def _turn(angle: float) -> Float[np.ndarray, "2 2"]:
    """A rotation of the plane."""
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
