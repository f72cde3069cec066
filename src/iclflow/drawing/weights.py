"""Plots of the weights of a run: spectra, heads and components over time.

Weights are a stack of models, one for each of the `times`. Each function draws on the given axes or
on new ones, and returns them with the labels of their y axes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ..circuits import Circuits, Role, head_roles, stacked_circuits, weight_sets
from ..estimators import PopulationPCR, principal_components
from ..models import AbstractModel
from ..tasks import AbstractTask, MultiTaskRegression
from ._drawing import Axes
from .loss import FEW_POINTS, framed_legend, one_panel, panels
from .style import COLOURS

# Heads that do nothing are grey, in the background.
ROLE_COLOURS: dict[Role, str] = {
    "positive": COLOURS[1],
    "negative": COLOURS[0],
    "opposing": COLOURS[3],
    "dummy": "0.6",
}
# Curves of the same colour differ by their dashes.
_DASHES = ("-", "--", "-.", ":")
# Up to this many curves each have a colour and an entry in the legend; matplotlib cycles through
# ten colours.
_NAMED = 10


def plot_spectrum(models: AbstractModel, times: np.ndarray, ax: Axes | None) -> tuple[Axes, str]:
    """Singular values of the matrix that all heads apply together, for linear attention with one
    label; otherwise those of each head."""
    found = _circuits(models, times)
    ax = one_panel(ax)
    if _is_linear(models) and found.values.shape[-2] == 1:
        names = [rf"$\sigma_{{{rank + 1}}}$" for rank in range(found.dim)]
        _draw_named(ax, times, _singular_values(found.together[:, 0]), names)
        return ax, r"singular values of $A=\Sigma_h v_h\,KQ_h$"
    values = _singular_values(found.attention[:, :, : found.dim])
    names = _head_names(models, values.shape[1])
    for head, style in enumerate(_styles(names)):
        for rank in range(found.dim):
            _draw(ax, times, values[:, head, rank], **style)
            style["label"] = None
    _legend(ax)
    return ax, "singular values of key-query"


def plot_heads(
    models: AbstractModel,
    times: np.ndarray,
    task: AbstractTask | None,
    label: int | None,
    axes: Sequence[Axes] | np.ndarray | None,
) -> tuple[np.ndarray, tuple[str, str]]:
    """ω (above) and μ (below) of each head, one column per label."""
    found = _circuits(models, times, task)
    labels = found.values.shape[-2]
    if label is not None and label not in range(labels):
        raise ValueError(f"`label` = {label!r}: must lie between 0 and {labels - 1}.")
    shown = range(labels) if label is None else (label,)
    grid = panels(axes, 2, len(shown))
    names = _head_names(models, found.values.shape[1])
    for column, each in zip(grid.T, shown):
        _draw_heads(column, times, found, each, names)
        if labels > 1:
            column[0].set_title(f"label {each + 1}", fontsize="medium")
        _legend(column[0])
    return grid, (r"attention $\omega$ (mean of diag KQ)", r"output $\mu$ (label entry of OV)")


def plot_components(
    models: AbstractModel, times: np.ndarray, task: AbstractTask, ax: Axes | None
) -> tuple[Axes, str]:
    """How much of each principal component of the inputs, or of each task, is learned."""
    if weight_sets(models) is not None:
        raise TypeError(
            f"{type(models).__name__} applies no one matrix to its inputs: `plot_components` needs "
            "one layer of attention."
        )
    if isinstance(task, MultiTaskRegression):
        found = _circuits(models, times, task)
        strengths = np.sum(found.mu * found.omega, axis=1)
        names = [f"task {i + 1}" for i in range(task.labels)]
        words = r"step on the task, $\Sigma_h\,\mu_h\omega_h$"
    else:
        variances, basis = principal_components(task)
        strengths = np.einsum("taa->ta", _circuits(models, times, task, basis).together[:, 0])
        names = [f"component {d + 1} (variance {v:.3g})" for d, v in enumerate(variances)]
        words = r"strength $e_d^\top A\,e_d$, $A=\Sigma_h\,\mu_h KQ_h$"
    ax = one_panel(ax)
    if _is_linear(models) and not isinstance(task, MultiTaskRegression):
        strengths = strengths / np.asarray(PopulationPCR(task, task.dim, models.divides_by).gains)
        ax.axhline(1.0, color="0.8", lw=0.8, zorder=1)
        words = "strength / best strength"
    _draw_named(ax, times, strengths, names)
    return ax, words


def _circuits(
    models: AbstractModel,
    times: np.ndarray,
    task: AbstractTask | None = None,
    basis: np.ndarray | None = None,
) -> Circuits:
    """The circuits of the heads at every saved point."""
    if len(times) == 0:
        raise ValueError("This run has no points: nothing can be drawn.")
    # Diverged weights give infinities, which are drawn as gaps.
    with np.errstate(all="ignore"):
        return stacked_circuits(models, task, basis)


def _is_linear(models: AbstractModel) -> bool:
    return getattr(models, "activation", "linear") == "linear"


def _head_names(models: AbstractModel, count: int) -> list[str]:
    layers = weight_sets(models) or 1
    heads = count // layers
    if layers == 1:
        return [f"head {h + 1}" for h in range(heads)]
    return [f"layer {h // heads + 1}, head {h % heads + 1}" for h in range(count)]


def _singular_values(matrices: Float[np.ndarray, "*points D D"]) -> Float[np.ndarray, "*points D"]:
    """The singular values of matrices, the largest first; NaN where a matrix is not finite."""
    finite = np.all(np.isfinite(matrices), axis=(-2, -1))
    values = np.linalg.svd(np.where(finite[..., None, None], matrices, 0.0), compute_uv=False)
    return np.where(finite[..., None], values, np.nan)


def _draw_named(
    ax: Axes, times: np.ndarray, curves: Float[np.ndarray, "T K"], names: Sequence[str]
) -> None:
    """Draws one named curve per column."""
    for curve, style in zip(curves.T, _styles(names)):
        _draw(ax, times, curve, **style)
    _legend(ax)


def _draw_heads(
    axes: Sequence[Axes] | np.ndarray,
    times: np.ndarray,
    heads: Circuits,
    label: int,
    names: Sequence[str],
) -> None:
    """Draws ω and μ of each head on one label, coloured by the role of the head at the end."""
    omega, mu = heads.omega[..., label], heads.mu[..., label]
    roles = head_roles(omega[-1], mu[-1], largest=float(heads.strength[-1].max(initial=0.0)))
    for role, colour in ROLE_COLOURS.items():
        members = [h for h, own in enumerate(roles) if own == role]
        for place, h in enumerate(members):
            if len(names) <= _NAMED:
                named = f"{names[h]} ({role})"
            else:
                named = None if place else f"{role} ({len(members)} of {len(names)} heads)"
            style = {"color": colour, "ls": _DASHES[place % len(_DASHES)], "label": named}
            for ax, values in zip(axes, (omega, mu)):
                # The active heads lie on top.
                _draw(ax, times, values[:, h], zorder=2 if role == "dummy" else 3, **style)
    for ax in axes:
        ax.axhline(0.0, color="0.8", lw=0.8, zorder=1)


def _draw(ax: Axes, times: np.ndarray, values: np.ndarray, lw: float = 1.8, **style: Any) -> None:
    """Draws one curve through its points."""
    ax.plot(times, values, lw=lw, marker="o" if len(times) <= FEW_POINTS else None, ms=3, **style)


def _styles(names: Sequence[str]) -> list[dict[str, Any]]:
    """The style of each curve: the first is the widest, so that curves that coincide all show."""
    count = len(names)
    if count <= _NAMED:
        widths = np.linspace(2.6, 1.3, count) if count > 1 else [1.8]
        return [{"color": f"C{i}", "lw": widths[i], "label": names[i]} for i in range(count)]
    import matplotlib

    return [{"color": c} for c in matplotlib.colormaps["viridis"](np.linspace(0.0, 0.9, count))]


def _legend(ax: Axes) -> None:
    """Puts the legend beside the axes, where it hides nothing."""
    if ax.get_legend_handles_labels()[0]:
        framed_legend(ax, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small")
