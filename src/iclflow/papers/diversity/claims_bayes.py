"""Claims on what heads can see of their tasks, and on the predictor that sees all of them."""

from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ...estimators import DiscreteMMSE, best_ridge
from ...models import Attention, Diagonal
from ...tasks import FiniteTasks, LinearRegression
from ...theory import diversity
from .. import Checks, Lab, claim, once

DIM, CONTEXT, NOISE = 5, 20, 0.1
OMEGA, MU = (0.13, -0.13), (3.45, -3.45)
DRAWN = 100_000
# Where the code is small enough to draw: K_c = 73 tasks.
CODE: dict[str, Any] = {"dim": 4, "context": 4, "noise": 0.25}
SHARES, DRAWS, COUNT = (0.5, 1.0, 1.5), 8, 2000


@once
def two_task_losses(lab: Lab) -> tuple[np.ndarray, np.ndarray]:
    """The mean loss of a pair of heads on one task and on two, and its standard errors."""
    del lab
    law = LinearRegression(np.ones(DIM), context=CONTEXT, noise=NOISE)
    model = Attention(Diagonal(list(OMEGA), list(MU), DIM))
    means, errors = [], []
    for i, rows in enumerate((np.eye(DIM)[[0, 0]], np.eye(DIM)[:2])):
        sequences = FiniteTasks(rows, law).sample(jr.key(i), DRAWN)
        squares = np.asarray(sequences.squared_error(model.predict(sequences)))
        means.append(squares.mean())
        errors.append(squares.std(ddof=1) / DRAWN**0.5)
    return np.array(means), np.array(errors)


@claim(
    "diversity/label-blind",
    """Softmax heads W = ωI on white inputs see no more of their tasks than their mean square norm:
    on one task or two the loss is that of isotropic tasks.""",
    source="beyond arXiv 2503.12734; derived in docs/theory/diversity.md",
    tolerance_reason="Sampled: four standard errors of 0.5 % of the loss.",
)
def label_blind(lab: Lab) -> Checks:
    """The sampled loss on two sets of tasks against the exact isotropic one."""
    lab.note(dim=DIM, context=CONTEXT, noise=NOISE, omega=OMEGA, mu=MU, sequences=DRAWN)
    means, errors = two_task_losses(lab)
    law = LinearRegression(np.ones(DIM), context=CONTEXT, noise=NOISE)
    exact = diversity.structured_heads_loss(law, np.eye(DIM)[:2], OMEGA, MU)
    yield lab.sampled("loss on one task, and on two", exact, means, errors)


def code_law() -> LinearRegression:
    """White inputs and tasks w ~ N(0, I)."""
    return LinearRegression(np.ones(CODE["dim"]), context=CODE["context"], noise=CODE["noise"])


@once
def code_shares(lab: Lab) -> np.ndarray:
    """E(ŷ_dMMSE − w·x)²/E(ŷ_ridge − w·x)² on the training tasks, with ln K at each share of I."""
    del lab
    law = code_law()
    information, ridge, found = diversity.code_information(law), best_ridge(law), []
    for share in SHARES:
        tasks, squares = round(np.exp(share * information)), np.zeros(2)
        for key in jr.split(jr.key(tasks), DRAWS):
            own = FiniteTasks.draw(key, tasks, law)
            sequences = own.sample(jr.fold_in(key, 1), COUNT)
            for i, each in enumerate((DiscreteMMSE(own.vectors, law.noise), ridge)):
                errors = sequences.squared_error(each.predict(sequences))
                squares[i] += float(jnp.mean(errors)) - float(law.noise)
        found.append(squares[0] / squares[1])
    return np.array(found)


@claim(
    "diversity/random-code",
    """Conjecture: dMMSE is the decoder of a random code, which recalls its K tasks while ln K is
    below the information in a context, and becomes ridge regression above it.""",
    source="beyond arXiv 2306.15063; conjectured in docs/theory/diversity.md",
    tolerance_reason="""A crossover at this size, not a jump: the bounds are a quarter and three
    quarters of the error of ridge, half and one and a half times the information away.""",
    figures=("diversity/recall",),
)
def random_code(lab: Lab) -> Checks:
    """The excess of dMMSE on its own tasks as a share of that of ridge."""
    lab.note(**CODE, shares=SHARES)
    found = code_shares(lab)
    yield lab.at_most("share of ridge at half of the information", 0.25, found[0])
    yield lab.close("share at the information itself", 0.5, found[1], 0.1, wrong=0.75)
    yield lab.at_least("share at one and a half times the information", 0.75, found[2])
