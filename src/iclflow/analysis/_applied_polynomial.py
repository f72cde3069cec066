"""Which polynomial of the context's covariance a stack of layers applies, from its predictions."""

from typing import NamedTuple

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Complex, Float, PRNGKeyArray

from ..errors import InputError
from ..models import (
    AbstractLinearStack,
    AttentionStack,
    attention_length,
    first_layers,
    map_models,
)
from ..tasks import LinearRegression, Sequences, check_count
from ._components import components
from ._fitted_estimators import predict

# How far beyond the largest eigenvalue of S that a task usually has levels reach.
_REACH = 1.3


class AppliedPolynomial(NamedTuple):
    """What layers leave of a task, at contexts whose S is a multiple of the input covariance.

    After l layers a stack of linear attention leaves the part Π of a task w, a product of
    1 − Γ_l S. At S = s Λ it is measured along each principal direction: p_d(s).

    **Fields:**

    - `levels`: s.
    - `values`: p_d(s) after each layer, the mean over frames.
    - `mixing`: the largest entry of Π beside the diagonal, after each layer.
    - `scatter`: the largest standard deviation over frames: 0 if a prediction depends on its
      context through S alone, as steps of gradient descent do.
    """

    levels: Float[np.ndarray, " K"]
    values: Float[np.ndarray, "L D K"]
    mixing: Float[np.ndarray, " L"]
    scatter: Float[np.ndarray, " L"]

    def steps(self, degree: int | None = None) -> Complex[np.ndarray, "D degree"]:
        """γ_l λ_d of the steps that make the same polynomials as the whole stack: one over their
        zeros, the largest first. Pairs may be complex: then no real steps do the same.

        **Arguments:**

        - `degree`: of the polynomial, by default one for each layer; GD++ has (3^L − 1)/2.
        """
        count = len(self.values) if degree is None else check_count("degree", degree)
        if count >= len(self.levels):
            raise InputError("degree", count, f"must be below the {len(self.levels)} levels")
        found = [self._zeros(values, count) for values in self.values[-1]]
        return np.stack([np.sort_complex(1 / zeros)[::-1] for zeros in found])

    def _zeros(self, values: Float[np.ndarray, " K"], degree: int) -> np.ndarray:
        # 1 + Σ c_k s^k by least squares. In units of the largest level powers stay of one size.
        scale = np.max(np.abs(self.levels))
        powers = (self.levels / scale)[:, None] ** np.arange(1, degree + 1)
        rest = np.linalg.lstsq(powers, values - 1, rcond=None)[0]
        return np.polynomial.polynomial.polyroots(np.append(1.0, rest)) * scale


def applied_polynomial(
    model: AttentionStack | AbstractLinearStack,
    task: LinearRegression,
    levels: Float[np.ndarray, " K"] | None = None,
    frames: int = 4,
    key: PRNGKeyArray | None = None,
) -> AppliedPolynomial:
    """Measures the polynomial that each further layer of a stack applies.

    Contexts are made, not sampled: their inputs are an orthonormal frame, stretched so that S is
    s Λ, and labels have no noise. Only predictions are read, so that any stack can be asked.

    **Arguments:**

    - `levels`: s, at least 2; by default evenly from 0 to beyond the spectrum of S.
    - `frames`: how many random frames for each level.
    - `key`: draws them; by default `jax.random.key(0)`.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression([1.0, 1.0], context=9)
    >>> stack = icl.ScalarStack(jnp.array([0.5, 1.25]), dim=2, depth=2)
    >>> icl.analysis.applied_polynomial(stack, task).steps()[0].real.round(6).tolist()
    [1.25, 0.5]
    ```
    """
    if not isinstance(model, AttentionStack | AbstractLinearStack):
        raise TypeError(f"{type(model).__name__} has no layers: must be a stack of layers.")
    check_count("frames", frames)
    dim, length = task.dim, max(task.max_context, task.dim)
    if levels is None:
        end = _REACH * (1 + np.sqrt(dim / length)) ** 2
        levels = np.linspace(0.0, end, max(9, 2 * model.depth + 3))
    levels = np.asarray(levels, float)
    if levels.ndim != 1 or len(levels) < 2 or not np.all((levels >= 0) & np.isfinite(levels)):
        raise InputError("levels", levels, "must be two or more numbers that are not negative")
    sequences = _contexts(task, levels, length, frames, jr.key(0) if key is None else key)
    measured = []
    for count in range(1, model.depth + 1):
        kept = np.asarray(predict(first_layers(model, count), sequences))[..., 0]
        measured.append(np.eye(dim) - kept)  # by frame, level, direction of the task, query
    left = np.stack(measured)
    mean = left.mean(1)
    diagonal = np.einsum("lkdd->ldk", mean)
    beside = mean - np.einsum("ldk,de->lkde", diagonal, np.eye(dim))
    return AppliedPolynomial(
        levels,
        diagonal,
        np.abs(beside).max((1, 2, 3)),
        left.std(1).max((1, 2, 3)),
    )


def shares_left(
    models: AbstractLinearStack, task: LinearRegression, levels: Float[np.ndarray, " K"]
) -> Float[np.ndarray, "T K"]:
    """(1/D) tr Π at S = s Λ of many stacks, such as `Trajectory.models`, from their weights.

    That is the share of a task that their layers leave, the mean over its directions. Of steps
    γ_l I on white inputs it is p(s) = Π_l (1 − γ_l s λ). Contexts have the largest length of the
    task.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression([1.0, 1.0], context=9)
    >>> steps = jnp.array([[0.5, 1.25], [0.0, 1.0]])
    >>> stacks = jax.vmap(lambda gamma: icl.ScalarStack(gamma, dim=2, depth=2))(steps)
    >>> icl.analysis.shares_left(stacks, task, np.array([0.0, 1.0, 2.0])).round(6).tolist()
    [[1.0, -0.125, 0.0], [1.0, 0.0, -1.0]]
    ```
    """
    read = lambda model: (model.steps(), model.moves())
    steps, moves = (np.asarray(part) for part in map_models(read, models))
    length = float(task.max_context)
    gain = length / float(np.asarray(attention_length(np.asarray(length), models.normaliser)))
    grams = gain * np.asarray(levels)[:, None, None] * np.asarray(task.covariance)
    unit = np.eye(task.dim)
    left = np.broadcast_to(unit, (len(steps), *grams.shape))
    turn = left
    for layer in range(steps.shape[1]):
        step = steps[:, layer, None]
        left = left - np.swapaxes(turn, -1, -2) @ step @ turn @ grams @ left
        if models.moving:
            inner = turn @ grams @ np.swapaxes(turn, -1, -2)
            turn = turn - moves[:, layer, None] @ inner @ np.swapaxes(step, -1, -2) @ turn
    return np.trace(left, axis1=-2, axis2=-1) / task.dim


def _contexts(
    task: LinearRegression,
    levels: Float[np.ndarray, " K"],
    length: int,
    frames: int,
    key: PRNGKeyArray,
) -> Sequences:
    """Contexts with S = s Λ, by frame, level, direction of the task and direction of the query."""
    found = components(task)
    assert found is not None  # linear regression has components
    dim, basis = task.dim, jnp.asarray(found.basis)
    normals = jr.normal(key, (frames, length, dim), basis.dtype)
    frame = jnp.linalg.qr(normals)[0] * jnp.sqrt(length * jnp.asarray(found.variances))
    x = jnp.einsum("k,fnd,ed->fkne", jnp.sqrt(jnp.asarray(levels)), frame, basis)
    y = jnp.einsum("fkne,ed->fkdn", x, basis)
    shape = (frames, len(levels), dim, dim)
    wide = lambda part, *rest: jnp.broadcast_to(part, (*shape, *rest))
    return Sequences(
        wide(x[:, :, None, None], length, dim),
        wide(y[:, :, :, None, :, None], length, 1),
        wide(basis.T, dim),
        wide(jnp.zeros(()), 1),
        wide(jnp.asarray(float(length))),
    )
