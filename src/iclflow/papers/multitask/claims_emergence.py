"""Claims on Figure 3 of arXiv 2402.19442: one head alone with its task."""

import jax
import jax.numpy as jnp
import numpy as np

from ...flows import SaveEvenly, gradient_flow
from ...models import Attention, BalancedSpectral
from ...risks import risk
from ...tasks import MultiTaskRegression
from ...theory import multitask
from ...trajectory import Trajectory
from .. import Checks, Lab, claim, once
from .runs import CONTEXT, SIZES, WIDTH, blocks_of_sizes
from .runs_search import free_heads

# Where Figure 3 starts, and how long our flow lasts.
_START, _END = (0.01, 1.0), 40.0


def _alone() -> MultiTaskRegression:
    return MultiTaskRegression(blocks_of_sizes(SIZES[:1]), context=CONTEXT, signal=1.0, noise=0.0)


def _head(omega: float, mu: float) -> Attention[BalancedSpectral]:
    sets = blocks_of_sizes(SIZES[:1])
    return Attention(BalancedSpectral.of([[omega]], [[mu]], sets, width=WIDTH))


@once
def _own_flow(lab: Lab) -> Trajectory:
    """Gradient flow of one balanced head on its task."""
    model = _head(*_START)
    return gradient_flow(
        model, risk(_alone(), model, "large_context"), end=_END, save=SaveEvenly(401),
        progress=False,
    )  # fmt: skip


@claim(
    "multitask/emergence-shape",
    """The head of a task, alone with it, follows the three panels of Figure 3: (a) μ from 1 and (b)
    ω from 0.01 rise once and come to rest, ω at d^−½; (c) with μ at its best dω/dt is slow, fast
    and slow again in ω, with its maximum in between, and zero at d^−½ alone.""",
    source="""Figure 3: d = 10 of 30, L = 100, φ = λ = 1, from (ω, μ) = (0.01, 1) and from 0.01. The
    start of Figure 1 is not known, so that nothing is said of times between the two figures""",
    tolerance_reason="""Two integrations of one flow, to 1e-9 a step: 1e-6. Velocities follow from
    gradients of the library's risk, without approximation: 1e-9. Slow means below half of the
    largest velocity, at 0.1 and at 0.95 of d^−½: fixed before the run.""",
    figures=("multitask/approximate-dynamics",),
)
def emergence_shape(lab: Lab) -> Checks:
    """ω and μ along the flow of one head; velocities at the best μ from gradients."""
    lab.note(size=SIZES[0], context=CONTEXT, width=WIDTH, start=_START, end=_END)
    task, run = _alone(), _own_flow(lab)
    rest, best = (float(each[0, 0]) for each in multitask.limit_heads(task))
    flow = multitask.own_head_flow(task, run.times, [_START[0]], [_START[1]], WIDTH)
    models = [run.at(n) for n in range(0, len(run), 10)]
    omega = np.array([float(model.circuits.omega()[0, 0]) for model in models])
    mu = np.array([float(model.circuits.mu()[0, 0]) for model in models])
    yield lab.relative("(a) μ along the flow", flow.mu[::10, 0], mu, 1e-6)
    yield lab.relative("(b) ω along the flow", flow.omega[::10, 0], omega, 1e-6)
    rises = bool(np.all(np.diff(omega) > -1e-9))
    yield lab.equal("(b) whether ω only rises", True, rises)
    yield lab.relative("(a, b) μ and ω at rest", np.array([best, rest]), [mu[-1], omega[-1]], 1e-4)
    grid = np.linspace(0.02, 1.2, 58) * rest
    expected = multitask.emergence_velocity(task, grid[:, None], WIDTH)[:, 0]
    found = lab.compute(_velocities, grid)
    largest = float(np.abs(expected).max())
    yield lab.close("(c) dω/dt over its largest", expected / largest, found / largest, 1e-9)
    # Signs of the velocity on both sides of the rest.
    right = np.sign(rest - grid)
    hits = int((np.sign(found) == right).sum())
    yield lab.equal("(c) points with the sign of d^−½ − ω", len(grid), hits)
    near = lambda at: float(np.interp(at * rest, grid, found) / found.max())
    name = "(c) velocity over its largest, early and late"
    yield lab.at_most(name, 0.5, np.array([near(0.1), near(0.95)]))


def _velocities(omegas: np.ndarray) -> np.ndarray:
    """dω/dt of a balanced head whose μ is at its best, from gradients of the risk."""
    task = _alone()
    value = risk(task, _heads_of(jnp.array(_START)), "large_context")
    slope = jax.jit(jax.grad(lambda pair: value(_heads_of(pair))))
    found = []
    for omega in omegas:
        # The risk is quadratic in μ.
        low, high = (float(slope(jnp.array([omega, mu]))[1]) for mu in (0.0, 1.0))
        by_omega = float(slope(jnp.array([omega, -low / (high - low)]))[0])
        # In balance ω̇ = −(k² + q²) ∂L/∂ω/(2Ed) with k² = q² = ω√E.
        found.append(-omega * by_omega / (WIDTH**0.5 * SIZES[0]))
    return np.array(found)


def _heads_of(pair: jax.Array) -> Attention:
    """A head whose ω and μ are linear in the two numbers, so that μ = 0 has a slope."""
    return free_heads(pair[:1, None], pair[1:, None], blocks_of_sizes(SIZES[:1]))
