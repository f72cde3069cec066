"""Training of merged key-query attention in closed form: early times, and white inputs.

Gradient flow τ dW/dt = −½ ∂L/∂W on A = Σ v_h U_h reads τ v̇_h = ⟨U_h, E⟩, τ U̇_h = v_h E with
E = S − C A Λ. Times are in units of τ. Derived in docs/theory/linear.md.
"""

import numpy as np
from jaxtyping import ArrayLike, Float, Real

from ..errors import Refusal
from ..tasks import LinearRegression
from ._merged_landscape import check_heads, unstable_direction
from ._moments import Normaliser, white_moments
from ._optimum import optimal_loss


def merged_conserved(
    v: Float[ArrayLike, " H"], U: Float[ArrayLike, "H D D"]
) -> Float[np.ndarray, "H H"]:
    """v_i v_j − ⟨U_i, U_j⟩: gradient flow keeps every entry of it."""
    v, U = np.asarray(v, dtype=np.float64), np.asarray(U, dtype=np.float64)
    return np.outer(v, v) - np.einsum("ide,jde->ij", U, U)


def growth_rate(task: LinearRegression, normaliser: Normaliser = "context") -> float:
    """g = ‖ΛMΛ‖: near the origin the weights grow as e^{gt/τ} and A as e^{2gt/τ}."""
    return unstable_direction(task, normaliser)[0]


def growing_amplitudes(
    task: LinearRegression,
    v: Float[ArrayLike, " H"],
    U: Float[ArrayLike, "H D D"],
    normaliser: Normaliser = "context",
) -> Float[np.ndarray, " H"]:
    """p_h = (v_h + ⟨U_h, Ê⟩)/2, the part of each head that grows; A → (Σ p_h²) e^{2gt/τ} Ê.

    All that the initial weights decide, when they are small, is Σ p_h².
    """
    v, U = check_heads(task, v, U)
    _, direction = unstable_direction(task, normaliser)
    return (v + np.einsum("hde,de->h", U, direction)) / 2


def early_weights(
    task: LinearRegression,
    v: Float[ArrayLike, " H"],
    U: Float[ArrayLike, "H D D"],
    times: Real[ArrayLike, " T"],
    normaliser: Normaliser = "context",
) -> tuple[Float[np.ndarray, "T H"], Float[np.ndarray, "T H D D"]]:
    """v(t) and U(t) while A is still small, for any task and any initial weights.

    The force is then the constant S, and the flow linear; A has a relative error of ‖CAΛ‖/‖S‖.
    """
    v, U = check_heads(task, v, U)
    rate, direction = unstable_direction(task, normaliser)
    phase = rate * np.asarray(times, dtype=np.float64)[:, None]
    along = np.einsum("hde,de->h", U, direction)
    v_t = v * np.cosh(phase) + along * np.sinh(phase)
    along_t = along * np.cosh(phase) + v * np.sinh(phase)
    return v_t, U + (along_t - along)[..., None, None] * direction


def white_initial_strength(
    task: LinearRegression,
    v: Float[ArrayLike, " H"],
    U: Float[ArrayLike, "H D D"],
    normaliser: Normaliser = "context",
) -> float:
    """σ₀ = Σ p_h²/√D, the start of `white_strength` that these weights have.

    For U_h = v_h I/√D it is Σ v_h²/√D and exact (the w_init² of arXiv 2501.16265 is then Σ v_h²);
    for other small weights it makes `white_strength` right from the time when the growing part
    dominates. Gaussian weights of standard deviation s have mean H s²/(2√D).
    """
    dim = white_moments(task, normaliser).dim
    return float(np.sum(growing_amplitudes(task, v, U, normaliser) ** 2) / np.sqrt(dim))


def white_strength(
    task: LinearRegression,
    times: Real[ArrayLike, " T"],
    initial_strength: float,
    normaliser: Normaliser = "context",
) -> Float[np.ndarray, " T"]:
    """σ(t) with A = σ(t) I for white inputs: a rescaled sigmoid (arXiv 2501.16265).

    1/σ(t) = (1 − e^{−rt/τ})/σ* + e^{−rt/τ}/σ₀ with r = 2√D λ² (M = I, one length), σ* = a*.

    **Arguments:**

    - `initial_strength`: σ₀ > 0, see `white_initial_strength`.
    """
    white = white_moments(task, normaliser)
    _check_strength(initial_strength)
    decay = np.exp(-white_rate(task, normaliser) * np.asarray(times, dtype=np.float64))
    return 1 / ((1 - decay) / white.optimum + decay / initial_strength)


def white_loss(
    task: LinearRegression,
    times: Real[ArrayLike, " T"],
    initial_strength: float,
    normaliser: Normaliser = "context",
) -> Float[np.ndarray, " T"]:
    """L(t) for white inputs: L* + D λC (σ(t) − σ*)²."""
    strength = white_strength(task, times, initial_strength, normaliser)
    return white_loss_of_strength(task, strength, normaliser)


def white_loss_of_strength(
    task: LinearRegression,
    strength: Float[ArrayLike, "*T"],
    normaliser: Normaliser = "context",
) -> Float[np.ndarray, "*T"]:
    """The loss of A = σ I for white inputs."""
    white = white_moments(task, normaliser)
    gap = np.asarray(strength, dtype=np.float64) - white.optimum
    return np.asarray(optimal_loss(task, normaliser) + white.dim * white.curvature * gap**2)


def white_drop_time(
    task: LinearRegression,
    initial_strength: float,
    fraction: float = 0.5,
    normaliser: Normaliser = "context",
) -> float:
    """When a fraction f of L(0) − L* is gone for white inputs: σ = xσ*, x = 1 − √(1 − f)."""
    white = white_moments(task, normaliser)
    _check_strength(initial_strength)
    reached = 1 - np.sqrt(1 - check_fraction(fraction))
    odds = (white.optimum / initial_strength - 1) * reached / (1 - reached)
    if odds < 1:
        raise Refusal(
            f"`initial_strength` = {initial_strength}: the loss starts below `fraction` = "
            f"{fraction} of its drop; must be at most {reached * white.optimum:.6g}."
        )
    return float(np.log(odds) / white_rate(task, normaliser))


def white_rate(task: LinearRegression, normaliser: Normaliser = "context") -> float:
    """r = 2√D λ² (M = I, one length): the rate of the sigmoid, twice g."""
    white = white_moments(task, normaliser)
    return float(2 * np.sqrt(white.dim) * white.drive)


def check_fraction(fraction: float) -> float:
    """`fraction` strictly between 0 and 1."""
    if not 0 < fraction < 1:
        raise Refusal(f"`fraction` = {fraction}: must lie strictly between 0 and 1.")
    return float(fraction)


def _check_strength(initial_strength: float) -> None:
    if not np.isfinite(initial_strength) or initial_strength <= 0:
        raise Refusal(f"`initial_strength` = {initial_strength}: must be finite and positive.")
