"""How the noise of batches drives weights away from one head per task.

In stochastic gradient descent with the rate η on batches of B drawn sequences, the slopes of
U_h = O_hV_h have noise off the diagonal. Its antisymmetric part turns O_h against V_h in the plane
of two labels i, j, which keeps OᵀO = VVᵀ: balance does not forbid it. With o_i = s e_i + r e_j and
v_i = s e_i − r e_j the head reads both labels with μ = s² − r², and Δ = 4sr takes the place of the
imbalance o² − v²: it is conserved while s decays and r grows. So each head of three or more tasks
gets an imbalance that is normal with a variance proportional to η/B, and leaves the saddle when it
says. Derived in docs/theory/multitask.md.
"""

from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from ...errors import Refusal
from .._check import HeadsLike, check_heads, check_positive, check_whole
from .._integrate import integrate
from ._blocks import Blocks, Tasks
from ._loss import Heads, quick_loss, slopes_at
from ._spectral_flow import SpectralFlow, spectral_flow

# Points of the flow between which singular values are interpolated, in their logarithms.
_POINTS = 2001
# E ln|x| for a standard normal x.
_MEAN_LOG = -(np.euler_gamma + np.log(2)) / 2


class OffDiagonal(NamedTuple):
    """The linear equation of the off-diagonal parts of O and V, for a pair of labels i and j.

    The 4H unknowns are O_ij, O_ji, V_ji and V_ij of every head, in its frame (V is transposed, so
    that rows are labels). They obey ẋ = `drift` x and gain the covariance (η/B) `noise` in a unit
    of time.
    """

    drift: Float[np.ndarray, "N N"]
    noise: Float[np.ndarray, "N N"]


class NoiseSeed(NamedTuple):
    """The imbalance that batch noise gives to the heads of other tasks.

    **Fields:**

    - `flow`: the balanced flow along which it is made.
    - `heads`: (head, i, j) for every pair of labels i < j and every head that owns another label.
    - `deviations`: the standard deviation of Δ over √(η/B) of that head on these two labels.
    """

    flow: SpectralFlow
    heads: tuple[tuple[int, int, int], ...]
    deviations: Float[np.ndarray, " pairs"]


def label_products(task: Tasks, omega: HeadsLike) -> Float[np.ndarray, "I H H"]:
    """M_hk = E z_h z_k for each label, z_h being what head h returns of it.

    λd (ω_h ω_k + (φ/L) e^⟨h,k⟩): the loss of a label is λd − 2λd μ·ω + μᵀMμ.

    **Example:**

    ```pycon
    >>> task = icl.theory.multitask.Blocks([10, 10], [0.1, 0.1], [0.1, 0.1], length=50)
    >>> omega, mu = icl.theory.multitask.limit_heads(task)
    >>> products = icl.theory.multitask.label_products(task, omega)
    >>> loss = task.power - 2 * task.power * (mu * omega).sum(0)
    >>> (loss + np.einsum("hi,ihk,ki->i", mu, products, mu)).round(4)
    array([0.3742, 0.3742])
    >>> icl.theory.multitask.loss(task, omega, mu).round(4)
    array([0.3742, 0.3742])
    ```
    """
    blocks = Blocks.of(task)
    (omega,) = check_heads(blocks.count, omega=omega)
    return _products(omega, blocks)


def slope_noise(
    task: Tasks, omega: HeadsLike, mu: HeadsLike, labels: tuple[int, int]
) -> Float[np.ndarray, "N N"]:
    """The covariance, over single sequences, of the slopes of U_h,ij and then of U_h,ji.

    With the errors e and the returns z of a sequence, the slope of U_h,ij is 2 e_i z_hj. Labels
    have independent coefficients, so that Cov(U_h,ij, U_k,ij) = 4 E[e_i²]E[z_hj z_kj] and
    Cov(U_h,ij, U_k,ji) is the product of the slopes of μ_ki and μ_hj, for large blocks.

    **Example:**

    ```pycon
    >>> task = icl.theory.multitask.Blocks([10, 10], [0.1, 0.1], [0.1, 0.1], length=50)
    >>> omega, mu = icl.theory.multitask.limit_heads(task)
    >>> noise = icl.theory.multitask.slope_noise(task, omega, mu, labels=(0, 1))
    >>> np.diag(noise).round(4)
    array([0.1134, 0.3031, 0.3031, 0.1134])
    >>> # 4 E[e_0²] E[z_h1²] for heads h = 0, 1.
    >>> error = icl.theory.multitask.loss(task, omega, mu)[0] + 0.1
    >>> products = icl.theory.multitask.label_products(task, omega)
    >>> (4 * error * np.diag(products[1])).round(4)
    array([0.1134, 0.3031])
    ```
    """
    blocks = Blocks.of(task)
    omega, mu = check_heads(blocks.count, omega=omega, mu=mu)
    return _slope_noise(omega, mu, blocks, labels)


def off_diagonal(
    task: Tasks, omega: HeadsLike, mu: HeadsLike, labels: tuple[int, int]
) -> OffDiagonal:
    """The equation of the off-diagonal parts of O and V around balanced diagonal ones.

    **Example:**

    ```pycon
    >>> task = icl.theory.multitask.Blocks([10, 10, 10], [0.1] * 3, [0.1] * 3, length=50)
    >>> omega, mu = icl.theory.multitask.limit_heads(task)
    >>> found = icl.theory.multitask.off_diagonal(task, omega, mu, labels=(0, 1))
    >>> found.drift.shape, found.noise.shape
    ((12, 12), (12, 12))
    >>> # O_01 of head 1 gains ½ μ times the variance of the slope of U_01.
    >>> noise = icl.theory.multitask.slope_noise(task, omega, mu, labels=(0, 1))
    >>> round(float(found.noise[4, 4]), 4), round(float(0.5 * mu[1, 1] * noise[1, 1]), 4)
    (0.2999, 0.2999)
    ```
    """
    blocks = Blocks.of(task)
    omega, mu = check_heads(blocks.count, omega=omega, mu=mu)
    if np.any(mu < 0):
        raise Refusal("`mu` must not be negative: in balance it is a square.")
    return _linearised(omega, mu, blocks, labels)


def noise_seed(
    task: Tasks, omega: HeadsLike, mu: HeadsLike, width: int, end: float = 60.0
) -> NoiseSeed:
    """The imbalance by batch noise along the balanced flow from a start, up to `end`.

    By then heads must have selected their tasks: what noise does later is negligible.

    **Arguments:**

    - `omega`, `mu`: at t = 0, positive; a different head must end with each task.
    - `width`: E, the width of keys and values.

    **Example:**

    ```pycon
    >>> task = icl.theory.multitask.Blocks([4, 4, 4], [1, 1, 1], [0, 0, 0], length=20)
    >>> omega, mu = 0.02 + 0.38 * np.eye(3), 0.1 + 0.4 * np.eye(3)
    >>> seed = icl.theory.multitask.noise_seed(task, omega, mu, width=4, end=20.0)
    >>> seed.heads
    ((2, 0, 1), (1, 0, 2), (0, 1, 2))
    >>> seed.deviations.round(3)
    array([0.291, 0.291, 0.291])
    >>> # Smaller steps or larger batches: heads leave later.
    >>> for ratio in (1e-2, 1e-3):
    ...     print(icl.theory.multitask.leaving_times(seed, ratio).round(1))
    ...
    [12.7 12.7 12.7]
    [17.3 17.3 17.3]
    >>> times = icl.theory.multitask.leaving_quantiles(seed, 1e-3, np.array([0.1, 0.5]))[:, 0]
    >>> times.round(1)
    array([12.8, 16.3])
    >>> icl.theory.multitask.share_left(seed, 1e-3, float(times[1])).round(3)
    array([0.5, 0.5, 0.5])
    ```
    """
    blocks, width = Blocks.of(task), check_whole("width", width)
    end = check_positive("end", end)
    if blocks.count < 3:
        raise Refusal("`task` has fewer than three labels: noise turns planes of two other labels.")
    flow = spectral_flow(blocks, np.linspace(0.0, end, _POINTS), omega, mu, width)
    owners = np.argmax(flow.omega[-1] * flow.mu[-1], 0)
    pairs = [(i, j) for i in range(blocks.count) for j in range(i + 1, blocks.count)]
    found, deviations = [], []
    for i, j in pairs:
        covariance = _covariance(flow, blocks, (i, j))
        reading = np.sqrt(flow.mu[-1, :, i])
        for head in sorted(set(owners.tolist()) - {int(owners[i]), int(owners[j])}):
            # Δ = 4sr with O_ij = r and V_ji = −r, to first order.
            seen = np.zeros(len(covariance))
            seen[[4 * head, 4 * head + 2]] = np.array([2.0, -2.0]) * reading[head]
            found.append((head, i, j))
            deviations.append(float(np.sqrt(seen @ covariance @ seen)))
    return NoiseSeed(flow, tuple(found), np.asarray(deviations))


def leaving_times(seed: NoiseSeed, ratio: float, level: float = 0.1) -> Float[np.ndarray, " pairs"]:
    """The mean time at which noise brings the weights of a head on other labels to −`level`.

    With a given Δ it is the time at which the balanced flow has μ = Δ²/(16 `level`): by then
    s² = μ, and r² = `level`. The logarithm of |Δ| has the mean ln(deviation √ratio) − 0.635.

    **Arguments:**

    - `ratio`: η/B, the rate over the number of sequences in a batch.
    """
    ratio, level = check_positive("ratio", ratio), check_positive("level", level)
    logs = np.log(seed.deviations) + np.log(ratio) / 2 + _MEAN_LOG
    return _times_of(seed, 2 * logs - np.log(16 * level))


def leaving_quantiles(
    seed: NoiseSeed, ratio: float, shares: np.ndarray, level: float = 0.1
) -> Float[np.ndarray, "shares pairs"]:
    """The times before which these shares of heads have left: large |Δ| leave first."""
    ratio, level = check_positive("ratio", ratio), check_positive("level", level)
    sizes = (
        -scipy.special.ndtri(np.asarray(shares, float) / 2)[:, None] * seed.deviations * ratio**0.5
    )
    return np.stack([_times_of(seed, np.log(row**2 / (16 * level))) for row in sizes])


def share_left(
    seed: NoiseSeed, ratio: float, time: float, level: float = 0.1
) -> Float[np.ndarray, " pairs"]:
    """The share of heads that have left by a time: those with |Δ| > 4(`level` μ)^½, μ being that of
    the balanced flow at the time."""
    ratio, level = check_positive("ratio", ratio), check_positive("level", level)
    time = check_positive("time", time)
    if time > seed.flow.times[-1]:
        raise Refusal(f"`time` = {time:g}: must not be after the end of the seed.")
    logs = [np.log(seed.flow.mu[:, head, [i, j]]).mean(1) for head, i, j in seed.heads]
    now = np.exp([np.interp(time, seed.flow.times, log) for log in logs])
    return scipy.special.erfc(4 * np.sqrt(level * now / (2 * ratio)) / seed.deviations)


def _times_of(seed: NoiseSeed, logs: np.ndarray) -> np.ndarray:
    """When the balanced flow has these ln μ on other labels, after its last rise."""
    times = []
    for (head, i, j), wanted in zip(seed.heads, logs):
        other = np.log(seed.flow.mu[:, head, [i, j]]).mean(1)
        last = int(np.argmax(other))
        if wanted < other[-1]:
            raise Refusal("`end` of the seed is before the heads leave: take a larger one.")
        times.append(np.interp(-wanted, -other[last:], seed.flow.times[last:]))
    return np.asarray(times)


def _products(omega: Heads, blocks: Blocks) -> np.ndarray:
    kernel = np.exp((omega * blocks.sizes) @ omega.T)
    both = np.einsum("hi,ki->ihk", omega, omega)
    share = (blocks.phi / blocks.length)[:, None, None]
    return blocks.power[:, None, None] * (both + share * kernel)


def _slope_noise(omega: Heads, mu: Heads, blocks: Blocks, labels: tuple[int, int]) -> np.ndarray:
    (i, j), heads = labels, len(omega)
    products, losses = _products(omega, blocks), quick_loss(omega, mu, blocks) + blocks.noise
    slopes = slopes_at(blocks)(omega, mu)[1]
    found = np.zeros((2 * heads, 2 * heads))
    found[:heads, :heads] = 4 * losses[i] * products[j]
    found[heads:, heads:] = 4 * losses[j] * products[i]
    found[:heads, heads:] = np.outer(slopes[:, j], slopes[:, i])
    found[heads:, :heads] = found[:heads, heads:].T
    return found


def _linearised(omega: Heads, mu: Heads, blocks: Blocks, labels: tuple[int, int]) -> OffDiagonal:
    """With A = diag(√μ) and U = OV: Ȯ = −½ GVᵀ and V̇ᵀ = −½ GᵀO to first order off the diagonal."""
    (i, j), heads, each = labels, len(omega), np.arange(len(omega))
    root, slopes = np.sqrt(mu), slopes_at(blocks)(omega, mu)[1]
    products = _products(omega, blocks)
    o_ij, o_ji, v_ij, v_ji = (4 * each + part for part in range(4))
    size = 4 * heads
    by_ij, by_ji = np.zeros((heads, size)), np.zeros((heads, size))
    by_ij[each, v_ji], by_ij[each, o_ij] = root[:, i], root[:, j]
    by_ji[each, v_ij], by_ji[each, o_ji] = root[:, j], root[:, i]
    # What the changes of U do to its slopes.
    back_ij, back_ji = 2 * products[j] @ by_ij, 2 * products[i] @ by_ji
    drift, kicked = np.zeros((size, size)), np.zeros((size, 2 * heads))
    moved = (
        (o_ij, v_ij, i, j, back_ij, 0), (v_ij, o_ij, i, j, back_ji, heads),
        (o_ji, v_ji, j, i, back_ji, heads), (v_ji, o_ji, j, i, back_ij, 0),
    )  # fmt: skip
    for here, partner, row, column, back, offset in moved:
        drift[here] -= 0.5 * root[:, column, None] * back
        drift[here, partner] -= 0.5 * slopes[:, row]
        kicked[here, offset + each] = -root[:, column]
    # A step of η is a time of 2η: η² in a step are η/2 in a unit of time.
    noise = 0.5 * kicked @ _slope_noise(omega, mu, blocks, labels) @ kicked.T
    return OffDiagonal(drift, noise)


def _covariance(flow: SpectralFlow, blocks: Blocks, labels: tuple[int, int]) -> np.ndarray:
    """Of the off-diagonal parts at the end of a flow, for η/B = 1."""
    logs = np.log(flow.omega), np.log(flow.mu)
    size = 4 * flow.omega.shape[1]
    step = flow.times[1]

    def velocity(time: float, flat: np.ndarray) -> np.ndarray:
        left = min(int(time / step), len(flow.times) - 2)
        share = time / step - left
        omega, mu = (np.exp((1 - share) * log[left] + share * log[left + 1]) for log in logs)
        drift, noise = _linearised(omega, mu, blocks, labels)
        covariance = flat.reshape(size, size)
        moved = drift @ covariance
        return (moved + moved.T + noise).ravel()

    start, end = np.zeros(size**2), float(flow.times[-1])
    found = integrate("The noise of batches", velocity, start, end, rtol=1e-5, atol=1e-10)
    return found.y[:, -1].reshape(size, size)
