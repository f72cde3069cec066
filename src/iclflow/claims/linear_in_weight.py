"""Claims on in-context against in-weight learning (arXiv 2501.16265 and its code)."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from .. import theory
from ..flows import LogSpaced, gradient_flow_ensemble
from ..models import FullMergedKQ, MergedKQ
from ..risks import exact_quadratic_risk
from ..tasks import RandomLabels, in_context_in_weight
from ._base import Check
from ._lab import Lab
from ._linear_runs import white_settings, white_task
from ._registry import claim

FRACTIONS = (0.02, 0.2, 0.4, 0.6, 0.8, 1.0)
END = 3e4


def in_weight_runs(lab: Lab):
    """Full merged attention on mixtures, one run a fraction p, all as one program."""

    def compute():
        task = white_task(0.25)
        model = FullMergedKQ.embed(MergedKQ.init(jr.key(16), 4, 8, 1e-2))
        risks = [exact_quadratic_risk(in_context_in_weight(task, p), model) for p in FRACTIONS]
        return gradient_flow_ensemble(
            [model] * len(FRACTIONS), risks, end=END, save=LogSpaced(120, first=0.3), rtol=1e-8
        )

    return lab.once("in weight", compute)


def test_losses(runs) -> tuple[np.ndarray, np.ndarray]:
    """In-context and in-weight test loss of the final models."""
    task, template = white_task(0.25), runs[0].final
    in_context = exact_quadratic_risk(task, template)
    in_weight = exact_quadratic_risk(RandomLabels(task, np.ones(4)), template)
    finals = [run.final for run in runs]
    return (
        np.array([float(in_context(m)) for m in finals]),
        np.array([float(in_weight(m)) for m in finals]),
    )


@claim(
    "linear/in-context-in-weight",
    "As the share p of sequences with a random task vector goes from 0 to 1, trained attention "
    "gets better at reading the context and worse at recalling the fixed vector; both end points "
    "follow exactly from the moments of the mixture.",
    source="Appendix on in-weight learning; exact moments beyond the paper",
    tolerance_reason="Runs end when the slowest direction has decayed below rounding; the train "
    "loss is then exact, and the test losses are off by first order in what the solver's "
    "tolerance of 1e-8 leaves in the weights.",
    figures=("linear/in-weight",),
)
def in_context_and_in_weight(lab: Lab) -> list[Check]:
    """Train, in-context and in-weight loss at the end of exact training, for each p."""
    runs = in_weight_runs(lab)
    lab.note(**white_settings(0.25), heads=8, fractions=FRACTIONS, end=END)
    predicted = theory.in_weight_losses(white_task(0.25), FRACTIONS)
    in_context, in_weight = test_losses(runs)
    return [
        Check("train loss", lab.predict(predicted.train), runs.final_losses, 1e-9),
        Check("in-context test", lab.predict(predicted.in_context), in_context, 1e-6),
        Check("in-weight test", lab.predict(predicted.in_weight), in_weight, 1e-6),
    ]


@claim(
    "linear/in-weight-blocks",
    "With random task vectors alone only v and U move; any share of a fixed one moves the blocks "
    "u and h too.",
    source="beyond the paper; derived in docs/theory/linear.md",
    tier="default",
    tolerance_reason="Blocks that theory holds at zero stay there to rounding; others reach the "
    "size of the learned weights.",
    figures=("linear/in-weight",),
)
def in_weight_blocks(lab: Lab) -> list[Check]:
    """Sizes of the blocks u and h at the end of each run."""
    lab.note(**white_settings(0.25), heads=8, fractions=FRACTIONS, end=END)
    sizes = []
    for run in in_weight_runs(lab):
        final = run.final
        sizes.append(
            max(
                float(jnp.abs(final.value[:, :-1]).max()),
                float(jnp.abs(final.key_query[:, -1]).max()),
            )
        )
    least = lab.predict(0.01, wrong=10.0)
    return [
        Check("u and h at p = 1", lab.predict(0.0, wrong=0.1), sizes[-1], 1e-10),
        Check("u and h at p < 1", np.full(len(sizes) - 1, least), sizes[:-1], 0, "at least"),
    ]


@claim(
    "linear/in-weight-escape",
    "The plateau before learning is left at the rate of the top singular value of the cubic "
    "moments, which falls as p rises.",
    source="beyond the paper; derived in docs/theory/linear.md",
    tolerance_reason="Growth is measured between weights of 1e-4 and 1e-2 of their final size, "
    "where slower modes still mix in: 0.5 %.",
)
def in_weight_escape(lab: Lab) -> list[Check]:
    """The growth rate of the weights while they are small."""
    task = white_task(0.25)
    lab.note(**white_settings(0.25), heads=8, scale=1e-6, fractions=FRACTIONS)
    predicted = [theory.escape_rate(in_context_in_weight(task, p)) for p in FRACTIONS]
    measured = []
    for run in _small_runs(lab):
        size = np.sqrt(np.sum(run.models.value**2, axis=(1, 2)))
        window = (size > 1e-4) & (size < 1e-2)
        slope = np.polyfit(run.times[window], np.log(size[window]), 1)[0]
        measured.append(slope)
    return [Check("growth rate at each p", lab.predict(predicted), measured, 5e-3, "relative")]


def _small_runs(lab: Lab):
    def compute():
        task = white_task(0.25)
        model = FullMergedKQ.embed(MergedKQ.init(jr.key(17), 4, 8, 1e-6))
        risks = [exact_quadratic_risk(in_context_in_weight(task, p), model) for p in FRACTIONS]
        return gradient_flow_ensemble([model] * len(FRACTIONS), risks, end=120.0)

    return lab.once("in weight, small", compute)
