"""The quantities that gradient flow conserves, and their drift over a run."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from ..models import (
    AbstractModel,
    Attention,
    ConvolutionalLinear,
    Merged,
    Separate,
    TwoLayerLinear,
    name_of,
)
from ..trajectory import Trajectory


class Balance(NamedTuple):
    """The conserved quantities of a run at each saved point (T of them).

    **Fields:**

    - `values`: by name; each with a leading axis over the points.
    - `drift`: the largest change of any of them since the start.
    - `scale`: the largest squared norm of a head's weights, which a drift is compared with.
    """

    values: dict[str, np.ndarray]
    drift: Float[np.ndarray, " T"]
    scale: float

    @property
    def relative_drift(self) -> float:
        """The largest drift over the run, as a share of `scale`."""
        return float(np.max(self.drift)) / self.scale if self.scale > 0 else 0.0


def balancedness(run: Trajectory) -> Balance:
    """The conserved quantities of gradient flow on linear attention, measured on a run.

    - merged: the whole H×H matrix a_i·a_j − ⟨B_i, B_j⟩ of value rows a and key-query blocks B,
      which is v_i v_j − ⟨U_i, U_j⟩ in the reduced form;
    - separate, for each head: K_hᵀK_h − Q_hᵀQ_h, an R×R matrix, and ‖a_h‖² − ‖K_h‖².

    They are zero for a balanced start. Descent in finite steps, and softmax attention, do not
    conserve them (derived in docs/theory/linear.md).

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=31)
    >>> model = icl.Attention.separate(jr.key(0), dim=2, heads=2, scale=1e-2)
    >>> run = icl.gradient_flow(model, icl.risk(task, model))
    >>> kept = icl.analysis.balancedness(run)
    >>> sorted(kept.values), bool(kept.relative_drift < 1e-6)
    (['key - query', 'value - key'], True)
    ```
    """
    values, sizes = _measure(run.models)
    scale = max(float(np.max(np.sum(x**2, -1))) for x in sizes)
    return Balance(values, _drift(values, {name: x[:1] for name, x in values.items()}), scale)


def conserved_drift(models: AbstractModel, start: AbstractModel) -> Float[np.ndarray, " T"]:
    """The largest change of any conserved quantity since `start`, for each of a stack of models.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=31)
    >>> model = icl.Attention.separate(jr.key(0), dim=2, heads=2, scale=1e-2)
    >>> run = icl.gradient_flow(model, icl.risk(task, model))
    >>> bool(icl.analysis.conserved_drift(run.models, model).max() < 1e-6)
    True
    ```
    """
    first = jax.tree.map(lambda leaf: np.asarray(leaf)[None], start)
    return _drift(_measure(models)[0], _measure(first)[0])


def has_conserved(model: AbstractModel) -> bool:
    """Whether gradient flow on a model, or a stack of models, has known conserved quantities.

    **Example:**

    ```pycon
    >>> icl.analysis.has_conserved(icl.Attention.merged(jr.key(0), dim=2, heads=1))
    True
    >>> icl.analysis.has_conserved(icl.Attention.factored(jr.key(0), dim=2, heads=1))
    False
    ```
    """
    if isinstance(model, Attention):
        return isinstance(model.circuits, Merged | Separate) and model.activation == "linear"
    return isinstance(model, TwoLayerLinear | ConvolutionalLinear)


def _drift(values: dict[str, np.ndarray], first: dict[str, np.ndarray]) -> np.ndarray:
    changes = [np.abs(values[name] - first[name]) for name in values]
    largest = [x.max(axis=tuple(range(1, x.ndim)), initial=0.0) for x in changes]
    return np.max(largest, axis=0)


def _measure(models: AbstractModel) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """The conserved quantities of a stack of models by name, and the weights whose squared norms
    are the scale of them, (T, H, ·) each."""
    value, *factors = _read_factors(models)
    if len(factors) == 1:
        block = _flatten(factors[0])
        gram = lambda x: np.einsum("tia,tja->tij", x, x)
        return {"value - key-query": gram(value) - gram(block)}, [value, block]
    key, query = factors
    gram = lambda x: np.einsum("thdr,thds->thrs", x, x)
    values = {
        "key - query": gram(key) - gram(query),
        "value - key": np.sum(value**2, -1) - np.einsum("thrr->th", gram(key)),
    }
    return values, [value, _flatten(key), _flatten(query)]


def _read_factors(models: AbstractModel) -> tuple[np.ndarray, ...]:
    """Value rows (T, H, ·), and the key-query blocks of merged models, or the keys and queries
    (T, H, D, R) of separate ones."""
    if isinstance(models, TwoLayerLinear):
        return np.asarray(models.w2)[..., None], np.asarray(models.W1)
    if isinstance(models, ConvolutionalLinear):
        kernel, row = (np.swapaxes(np.asarray(x), -1, -2) for x in (models.kernel, models.row))
        return np.asarray(models.scalar)[..., None], kernel, row
    if isinstance(models, Attention) and models.activation != "linear":
        raise TypeError(
            f"Softmax attention conserves nothing of this kind: {name_of(models)} must have "
            '`activation` = "linear".'
        )
    circuits = models.circuits if isinstance(models, Attention) else None
    if not isinstance(circuits, Merged | Separate):
        raise TypeError(f"No conserved quantities are known for {name_of(models)}.")
    value = np.asarray(circuits.value)[:, :, 0]
    if isinstance(circuits, Merged):
        return value, np.asarray(circuits.key_query)
    return value, np.asarray(circuits.K), np.asarray(circuits.Q)


def _flatten(blocks: np.ndarray) -> np.ndarray:
    return blocks.reshape(*blocks.shape[:2], int(np.prod(blocks.shape[2:])))
