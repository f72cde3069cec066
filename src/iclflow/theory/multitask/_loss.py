"""The loss of decomposable heads in the limit of long contexts and large blocks.

Head h attends with ω_hi on block i and reads label i with weight μ_hi. With the overlaps of scores
⟨h, k⟩ = Σ_j d_j ω_hj ω_kj and E = exp⟨h, k⟩ (entry by entry), beyond the noise of the labels

    L = Σ_i λ_i d_i [(1 − μ_i·ω_i)² + (φ_i/L) μ_iᵀ E μ_i].

At the best μ the loss of task i is λ_i d_i/(1 + κ_i x_i), x_i = d_i ω_iᵀ E⁻¹ ω_i ≤ 1: attention is
a choice of the shares x_i. Derived in docs/theory/multitask.md.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .._check import HeadsLike, check_heads
from ._blocks import Blocks, Tasks

Heads = Float[np.ndarray, "H I"]


class Slopes(NamedTuple):
    """∂L/∂ω_hi and ∂L/∂μ_hi."""

    omega: Heads
    mu: Heads


def loss(task: Tasks, omega: HeadsLike, mu: HeadsLike) -> Float[np.ndarray, " I"]:
    """λ_i d_i [(1 − μ_i·ω_i)² + (φ_i/L) μ_iᵀ E μ_i], the loss of each task.

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1, 2, 3], [4, 5, 6, 7]], context=48, noise=0.1)
    >>> omega, mu = np.eye(2) / 2, 1.5 * np.eye(2)
    >>> icl.theory.multitask.loss(task, omega, mu).round(4)
    array([0.2027, 0.2027])
    >>> # Of weights on zero nothing is predicted: λd is left.
    >>> icl.theory.multitask.loss(task, omega, 0 * mu).round(4)
    array([1., 1.])
    ```
    """
    blocks = Blocks.of(task)
    omega, mu = check_heads(blocks.count, omega=omega, mu=mu)
    return quick_loss(omega, mu, blocks)


def slopes(task: Tasks, omega: HeadsLike, mu: HeadsLike) -> Slopes:
    """∂L/∂ω and ∂L/∂μ of the total loss L = Σ_i of `loss`.

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1, 2, 3], [4, 5, 6, 7]], context=48, noise=0.1)
    >>> omega, mu = icl.theory.multitask.limit_heads(task)
    >>> slopes = icl.theory.multitask.slopes(task, omega, mu)
    >>> slopes.omega.round(4)
    array([[-0.,  0.],
           [ 0., -0.]])
    >>> slopes.mu.round(4)
    array([[-0.    ,  0.0734],
           [ 0.0734, -0.    ]])
    ```
    """
    blocks = Blocks.of(task)
    omega, mu = check_heads(blocks.count, omega=omega, mu=mu)
    return Slopes(*slopes_at(blocks)(omega, mu))


def quick_loss(omega: Heads, mu: Heads, blocks: Blocks) -> Float[np.ndarray, " I"]:
    """`loss` without checks, for integrations."""
    kernel = _kernel(omega, blocks.sizes)
    missed = (1 - np.sum(mu * omega, 0)) ** 2
    spread = np.einsum("hi,hk,ki->i", mu, kernel, mu)
    return blocks.power * (missed + blocks.phi / blocks.length * spread)


def slopes_at(blocks: Blocks):
    """∂L/∂ω and ∂L/∂μ as a function of ω and μ, for integrations.

    They call it thousands of times: constants are computed once, and nothing is checked.
    """
    sizes, power = blocks.sizes, blocks.power
    cost = power * blocks.phi / blocks.length

    def compute_slopes(omega, mu):
        kernel = _kernel(omega, sizes)
        missed = 1 - np.sum(mu * omega, 0)
        by_mu = 2 * (cost * (kernel @ mu) - power * omega * missed)
        shared = kernel * ((mu * cost) @ mu.T)
        by_omega = 2 * (sizes * (shared @ omega) - power * mu * missed)
        return by_omega, by_mu

    return compute_slopes


def best_mu(task: Tasks, omega: HeadsLike) -> Heads:
    """μ_i = E⁻¹ω_i/(φ_i/L + ω_iᵀE⁻¹ω_i), the weights of the smallest loss at given attention.

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1, 2, 3], [4, 5, 6, 7]], context=48, noise=0.1)
    >>> omega = np.array([[0.5, 0.1], [0.1, 0.5]])
    >>> mu = icl.theory.multitask.best_mu(task, omega)
    >>> mu.round(3)
    array([[ 1.76 , -0.644],
           [-0.644,  1.76 ]])
    >>> bool(np.allclose(icl.theory.multitask.slopes(task, omega, mu).mu, 0))
    True
    ```
    """
    blocks = Blocks.of(task)
    (omega,) = check_heads(blocks.count, omega=omega)
    bent = _solve(omega, blocks)
    gain = np.sum(omega * bent, 0)
    return bent / (blocks.phi / blocks.length + gain)


def shares(task: Tasks, omega: HeadsLike) -> Float[np.ndarray, " I"]:
    """x_i = d_i ω_iᵀ E⁻¹ ω_i, between 0 and 1: the share of a context in use for each task.

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1, 2, 3], [4, 5, 6, 7]], context=48, noise=0.1)
    >>> omega = np.array([[0.5, 0.0], [0.0, 0.5]])
    >>> found = icl.theory.multitask.shares(task, omega)
    >>> found.round(4)
    array([0.4255, 0.4255])
    >>> mu = icl.theory.multitask.best_mu(task, omega)
    >>> icl.theory.multitask.loss(task, omega, mu).round(4)
    array([0.1773, 0.1773])
    >>> # λd/(1 + κx), with λd = 1.
    >>> blocks = icl.theory.multitask.Blocks.of(task)
    >>> (1 / (1 + blocks.samples * found)).round(4)
    array([0.1773, 0.1773])
    ```
    """
    blocks = Blocks.of(task)
    (omega,) = check_heads(blocks.count, omega=omega)
    return blocks.sizes * np.sum(omega * _solve(omega, blocks), 0)


def _kernel(omega: Heads, sizes: Float[np.ndarray, " I"]) -> Float[np.ndarray, "H H"]:
    return np.exp((omega * sizes) @ omega.T)


def _solve(omega: Heads, blocks: Blocks) -> Heads:
    """E⁻¹ω, the shortest one where heads are equal."""
    return np.linalg.pinv(_kernel(omega, blocks.sizes), hermitian=True) @ omega
