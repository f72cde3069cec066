"""K, Q, V and O trained on fresh sequences from the starts that the authors' code writes down
(arXiv 2402.19442), and the same steps on the closed form of the loss, with the noise of batches."""

from typing import NamedTuple

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float

from ...flows import SaveEvenly, descend_ensemble, sgd_rule, stack
from ...models import Attention, Factored
from ...risks import IntegratedRisk, SampledRisk
from .. import Lab, once
from .runs import CONTEXT, SIZES, WIDTH, paper_task

# K = Q = L^−¾ on every coordinate and V = O = L^−¾ on every label, twice that on the own one; keys
# are as wide as a token.
SCALE, TASKS = CONTEXT**-0.75, len(SIZES)
TOKEN = WIDTH + TASKS
RATE = 0.05
# Batches, with labels integrated out and with drawn ones: as much noise on the diagonal of circuits
# as in batches of 5 120 and of 4 096 drawn labels; the authors draw 10 000.
INTEGRATED, DRAWN = 512, 4096
# Where a task is learned: half of what its head returns of it in the end, by the closed form, and
# where the warm-up and the emergence of the task end.
HALF, BEGUN, DONE = 0.4, 0.04, 0.7

Factors = Float[np.ndarray, "... H D"]


class Learning(NamedTuple):
    """R runs from the authors' starts, over T times of the flow.

    **Fields:**

    - `shares`: how much of each task's signal each head returns, the mean of U_hii ω_hd.
    - `attention`: the mean ω of each head on the coordinates of each task.
    """

    times: Float[np.ndarray, " T"]
    losses: Float[np.ndarray, "R T"]
    shares: Float[np.ndarray, "R T H I"]
    attention: Float[np.ndarray, "R T H I"]

    def passed(self, level: float) -> Float[np.ndarray, "R I"]:
        """When all heads together return this much of each task; infinite if they never do."""
        total = self.shares.sum(2)
        gone = total > level
        last = np.argmax(gone, 1)
        first = np.maximum(last - 1, 0)
        at = lambda index: np.take_along_axis(total, index[:, None], 1)[:, 0]
        step = np.maximum(at(last) - at(first), 1e-300)
        share = np.clip((level - at(first)) / step, 0.0, 1.0)
        found = self.times[first] + share * (self.times[last] - self.times[first])
        return np.where(gone.any(1), found, np.inf)

    def owners(self) -> np.ndarray:
        """The head with the largest share of each task when it is half learned."""
        index = np.minimum(np.searchsorted(self.times, self.passed(HALF)), len(self.times) - 1)
        rows, tasks = np.indices(index.shape)
        return np.argmax(self.shares[rows, index, :, tasks], -1)


def diagonal_factors(draws: int, seed: int = 0) -> tuple[Factors, Factors]:
    """The diagonals of K and Q: of the first version if `draws` is 0, else independent normal
    numbers, one for each coordinate, as the second version has them."""
    shape = (max(draws, 1), 2, TASKS, WIDTH)
    numbers = np.random.default_rng(seed).standard_normal(shape) if draws else np.ones(shape)
    return SCALE * numbers[:, 0], SCALE * numbers[:, 1]


def read_factors() -> Float[np.ndarray, "H I I"]:
    """V and O of all heads on labels."""
    heads = np.eye(TASKS)[:, :, None] * np.eye(TASKS)
    return SCALE * (np.broadcast_to(np.eye(TASKS), heads.shape) + heads)


def authors_model(k: Factors, q: Factors, blind: bool) -> Attention:
    """Heads with these diagonals as full factors of the width of a token."""
    keys, queries = (each[:, None, :] * np.eye(TOKEN, WIDTH) for each in (k, q))
    read = np.zeros((TASKS, TOKEN, TASKS))
    read[:, WIDTH:] = read_factors()
    factors = keys, queries, read, np.swapaxes(read, 1, 2)
    circuits = Factored(*map(jnp.asarray, factors))
    return Attention(circuits if blind else circuits.embed())


@once
def trained_on_data(
    lab: Lab, draws: int, which: tuple[int, ...], end: float, drawn: bool, batch: int
) -> Learning:
    """Plain stochastic gradient descent on fresh sequences, a step being a time of 2η.

    **Arguments:**

    - `draws`, `which`: as in `diagonal_factors`, and the draws that are trained.
    - `drawn`: whether labels are drawn, or integrated out.
    """
    k, q = diagonal_factors(draws)
    models = [authors_model(k[n % len(k)], q[n % len(k)], not drawn) for n in which]
    kind = SampledRisk if drawn else IntegratedRisk
    data = kind(paper_task(), batch, precision="float32")
    points = max(2, round(end))
    steps = points * max(1, round(end / (2 * RATE * points)))
    runs = descend_ensemble(
        stack(models), data, sgd_rule(RATE), steps, keys=jr.split(jr.key(31), len(models)),
        save=SaveEvenly(points + 1), progress=False,
    )  # fmt: skip
    lab.hash_runs(runs)
    found = [_heads(run.models.circuits) for run in runs]
    shares, attention = (np.stack(each) for each in zip(*found))
    losses = np.stack([run.losses for run in runs])
    return Learning(2 * RATE * np.asarray(runs[0].times), losses, shares, attention)


def _heads(circuits: Factored) -> tuple[np.ndarray, np.ndarray]:
    """Shares and mean ω along a run."""
    blind = circuits.K.shape[-1] == WIDTH
    omega = np.einsum("thed,thed->thd", circuits.K[..., :WIDTH], circuits.Q[..., :WIDTH])
    labels = circuits.V if blind else circuits.V[..., WIDTH:]
    own = np.einsum("thie,thei->thi", circuits.O, labels)
    attention = _by_task(omega / TOKEN**0.5).mean(-1)
    return own * attention, attention


@once
def noisy_flow(
    lab: Lab, draws: int, which: int, end: float, drawn: bool, batch: int, samples: int
) -> Learning:
    """The same steps on the closed form of the loss, with the noise of batches.

    While attention is flat a head returns the mean label ȳ_j: what moves its circuit U_ij at random
    is the mean of y_qi ȳ_j over a batch, of variance d²/LB, and d/LB on the diagonal alone where
    labels are integrated out. Deviations of scores from their mean see L − 1 samples.
    """
    k, q = (np.repeat(each[which : which + 1], samples, 0) for each in diagonal_factors(draws))
    v = np.broadcast_to(read_factors(), (samples, TASKS, TASKS, TASKS)).copy()
    o = np.swapaxes(v, 2, 3).copy()
    size, rng = SIZES[0], np.random.default_rng(7)
    deviation = (size**2 if drawn else size) / (CONTEXT * batch)
    mask = np.ones((TASKS, TASKS)) if drawn else np.eye(TASKS)
    every = round(1 / (2 * RATE))
    steps = every * round(end)
    saved = []
    for step in range(steps + 1):
        omega, read = k * q / TOKEN**0.5, o @ v
        loss, by_omega, by_read = closed_form_slopes(omega, read)
        if step % every == 0:
            mean = _by_task(omega).mean(-1)
            own = np.einsum("shii->shi", read)
            saved.append((loss, own * mean, mean))
        noise = mask * rng.standard_normal((samples, 1, TASKS, TASKS)) * deviation**0.5
        by_read = by_read - 2 * noise
        by_omega = by_omega / TOKEN**0.5
        k, q = k - RATE * by_omega * q, q - RATE * by_omega * k
        transposed = np.swapaxes(v, 2, 3), np.swapaxes(o, 2, 3)
        o, v = o - RATE * by_read @ transposed[0], v - RATE * transposed[1] @ by_read
    stacked = (np.stack(each, 1) for each in zip(*saved))
    return Learning(np.arange(len(saved)) * 1.0, *stacked)


def closed_form_slopes(
    omega: Float[np.ndarray, "S H D"],
    read: Float[np.ndarray, "S H I I"],
    gain: float = 1 - 1 / CONTEXT,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The closed form of the loss of Figure 1's task for diagonal key-query and any output-value
    circuits, and its slopes; `gain`: what L − 1 samples see of a score."""
    rate = SIZES[0] / CONTEXT
    blocks = _by_task(omega)
    eye = np.eye(TASKS)[:, :, None]
    missed = eye - gain * np.einsum("shij,shjd->sijd", read, blocks)
    tilt = np.exp(omega @ np.swapaxes(omega, 1, 2))
    overlap = np.einsum("shij,skij->shk", read, read)
    loss = np.sum(missed**2, (1, 2, 3)) + rate * np.sum(tilt * overlap, (1, 2))
    by_blocks = -2 * gain * np.einsum("shij,sijd->shjd", read, missed)
    by_omega = by_blocks.reshape(omega.shape) + 2 * rate * (tilt * overlap) @ omega
    by_read = -2 * gain * np.einsum("shjd,sijd->shij", blocks, missed)
    by_read = by_read + 2 * rate * np.einsum("shk,skij->shij", tilt, read)
    return loss, by_omega, by_read


def _by_task(values: np.ndarray) -> np.ndarray:
    """The last axis, of coordinates, as tasks of equal size and their coordinates."""
    return values.reshape(*values.shape[:-1], TASKS, SIZES[0])
