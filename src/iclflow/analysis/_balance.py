"""What gradient flow conserves, and how well a run conserved it."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..models import (
    AbstractAttention,
    AbstractModel,
    ConvolutionalLinear,
    FullMergedKQ,
    FullSeparateKQ,
    MergedKQ,
    SeparateKQ,
    TwoLayerLinear,
)
from ..trajectory import Trajectory


class Balance(NamedTuple):
    """The conserved quantities of a run at each saved point (T of them).

    **Fields:**

    - `values`: by name; each with a leading axis over the points.
    - `drift`: the largest change of any of them since the start.
    - `scale`: the largest squared norm of a head's weights: what a drift is small against.
    """

    values: dict[str, np.ndarray]
    drift: Float[np.ndarray, " T"]
    scale: float

    @property
    def relative_drift(self) -> float:
        """The largest drift over the run, as a share of `scale`."""
        return float(np.max(self.drift)) / self.scale if self.scale > 0 else 0.0


def balancedness(run: Trajectory) -> Balance:
    """The conserved quantities of gradient flow on linear attention, computed from a run.

    - merged: the whole H×H matrix a_i·a_j − ⟨B_i, B_j⟩ of value rows a and key-query blocks B,
      which is v_i v_j − ⟨U_i, U_j⟩ in the reduced form;
    - separate, for each head: K_hᵀK_h − Q_hᵀQ_h, an R×R matrix, and ‖a_h‖² − ‖K_h‖².

    They are zero for a balanced start. Descent in finite steps, and softmax attention, do not
    conserve them (derived in docs/theory/linear.md).
    """
    merged = _merged_factors(run.models)
    if merged is not None:
        value, block = merged
        gram = lambda x: np.einsum("tia,tja->tij", x, x)
        values = {"value - key-query": gram(value) - gram(block)}
        sizes = [value, block]
    else:
        value, key, query = _separate_factors(run.models)
        gram = lambda x: np.einsum("thdr,thds->thrs", x, x)
        key_norm = np.einsum("thrr->th", gram(key))
        values = {
            "key - query": gram(key) - gram(query),
            "value - key": np.sum(value**2, -1) - key_norm,
        }
        sizes = [value, key.reshape(*key.shape[:2], -1), query.reshape(*query.shape[:2], -1)]
    changes = [np.abs(x - x[:1]).reshape(len(run), -1).max(-1) for x in values.values()]
    scale = max(float(np.max(np.sum(x**2, -1))) for x in sizes)
    return Balance(values, np.max(changes, axis=0), scale)


def _merged_factors(models: AbstractModel) -> tuple[np.ndarray, np.ndarray] | None:
    """Value rows (T, H, ·) and flattened key-query blocks (T, H, ·) of merged models."""
    _require_linear(models)
    if isinstance(models, MergedKQ):
        return np.asarray(models.v)[..., None], _flat(models.U)
    if isinstance(models, FullMergedKQ):
        return np.asarray(models.value), _flat(models.key_query)
    if isinstance(models, TwoLayerLinear):
        return np.asarray(models.w2)[..., None], np.asarray(models.W1)
    return None


def _separate_factors(models: AbstractModel) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Value rows (T, H, ·), keys (T, H, D, R) and queries (T, H, D, R) of separate models."""
    if isinstance(models, SeparateKQ):
        return np.asarray(models.v)[..., None], np.asarray(models.K), np.asarray(models.Q)
    if isinstance(models, FullSeparateKQ):
        return np.asarray(models.value), np.asarray(models.key), np.asarray(models.query)
    if isinstance(models, ConvolutionalLinear):
        kernel, row = (np.swapaxes(np.asarray(x), -1, -2) for x in (models.kernel, models.row))
        return np.asarray(models.scalar)[..., None], kernel, row
    raise TypeError(f"No conserved quantities are known for {type(models).__name__}.")


def _require_linear(models: AbstractModel) -> None:
    if isinstance(models, AbstractAttention) and models.activation != "linear":
        raise TypeError(
            f"Softmax attention conserves nothing of this kind: {type(models).__name__} must have "
            '`activation` = "linear".'
        )


def _flat(blocks) -> np.ndarray:
    blocks = np.asarray(blocks)
    return blocks.reshape(*blocks.shape[:2], -1)
