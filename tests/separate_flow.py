"""Gradient flow of separate key-query attention, written again from its definition.

Nothing here comes from the library: moments, loss, flow and drop times are computed anew, with
scipy's implicit solver, so that the tests of the theory compare two independent computations.
"""

from typing import NamedTuple

import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import brentq


class Problem(NamedTuple):
    """L(A) = base − 2⟨cross, A⟩ + ⟨A, second A covariance⟩."""

    covariance: np.ndarray
    cross: np.ndarray
    second: np.ndarray
    base: float

    def loss(self, A):
        return (
            self.base - 2 * np.sum(self.cross * A) + np.sum(A * (self.second @ A @ self.covariance))
        )


def problem(covariance, M=None, lengths=(31,), noise=0.0, query_noise=0.0, gain=lambda n: 1.0):
    """The moments of in-context regression at equally likely context lengths.

    β = gain(n)/n Σ y x, so E[ββᵀ] = gain² [(1 + 1/n) ΛMΛ + (tr MΛ + σ²)/n Λ].
    """
    covariance = np.asarray(covariance, dtype=float)
    covariance = np.diag(covariance) if covariance.ndim == 1 else covariance
    M = np.eye(len(covariance)) if M is None else np.asarray(M, dtype=float)
    signal, power = covariance @ M @ covariance, np.trace(M @ covariance)
    second = np.mean(
        [gain(n) ** 2 * ((1 + 1 / n) * signal + (power + noise) / n * covariance) for n in lengths],
        axis=0,
    )
    cross = np.mean([gain(n) for n in lengths]) * signal
    return Problem(covariance, cross, second, power + query_noise)


class Flow:
    """τ dW/dt = −½ ∂L/∂W from (v, K, Q), with a dense solution."""

    def __init__(self, p: Problem, v, K, Q, end, rtol=1e-10):
        heads, dim, rank = K.shape
        size = heads * dim * rank
        self.problem = p
        shape = (heads, dim, rank)
        self.split = lambda z: (
            z[:heads],
            z[heads : heads + size].reshape(*shape, *z.shape[1:]),
            z[heads + size :].reshape(*shape, *z.shape[1:]),
        )

        def rhs(t, z):
            v, K, Q = self.split(z)
            A = np.tensordot(v[:, None, None] * K, Q, ((0, 2), (0, 2)))
            E = p.cross - p.second @ A @ p.covariance
            EQ, EK, u = E @ Q, E.T @ K, v[:, None, None]
            return np.concatenate([np.sum(K * EQ, (1, 2)), (u * EQ).ravel(), (u * EK).ravel()])

        start = np.concatenate([v, K.ravel(), Q.ravel()])
        self.solution = solve_ivp(
            rhs, (0, end), start, method="LSODA", rtol=rtol, atol=1e-16, dense_output=True
        )
        assert self.solution.success
        self.times = self.solution.t
        matrices = np.einsum("ht,hdrt,hert->tde", *self.split(self.solution.y))
        quadratic = p.second @ matrices @ p.covariance - 2 * p.cross
        self.step_losses = p.base + np.sum(matrices * quadratic, (1, 2))

    def weights(self, t):
        return self.split(self.solution.sol(t))

    def matrix(self, t):
        v, K, Q = self.weights(t)
        return np.einsum("h,hdr,her->de", v, K, Q)

    def loss(self, t):
        return self.problem.loss(self.matrix(t))

    def losses(self, times):
        return np.array([self.loss(t) for t in times])

    def crossing(self, level):
        """The first time at which the loss is below `level`; infinite if never."""
        below = np.flatnonzero(self.step_losses < level)
        if below.size == 0:
            return np.inf
        i = below[0]
        return brentq(lambda t: self.loss(t) - level, self.times[i - 1], self.times[i], rtol=1e-13)

    def drop_times(self, levels):
        """When half of each step between consecutive levels is gone."""
        return np.array([self.crossing((a + b) / 2) for a, b in zip(levels[:-1], levels[1:])])


def gaussian(seed, size, heads, dim, rank=1):
    """v, K, Q with entries N(0, size²)."""
    rng = np.random.default_rng(seed)
    shape = (heads, dim, rank)
    return tuple(size * rng.normal(size=s) for s in ((heads,), shape, shape))


def deterministic(size):
    """v, k, q of a fixed example with four heads and four components, two heads nearly tied."""
    h, d = np.meshgrid(np.arange(4), np.arange(4), indexing="ij")
    v = size * np.cos(1 + np.arange(4))
    return v, size * np.cos(2 + 3 * h + d)[..., None], size * np.sin(1 + 2 * h + 3 * d)[..., None]
