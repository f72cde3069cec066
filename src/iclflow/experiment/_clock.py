"""How the clock of a run and the time of gradient flow go together."""

from ._build import Experiment


def clock_unit(experiment: Experiment) -> float | None:
    """How much time of gradient flow one unit of the run's clock is; None where it is not that."""
    flow = experiment.config.flow
    if flow.kind == "gradient_flow":
        return 1.0
    plain = flow.kind == "gradient_descent" or getattr(flow, "momentum", 1.0) == 0.0
    return 2 * flow.learning_rate if plain else None
