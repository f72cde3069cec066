"""Stationary points of the loss, found from random weights."""

import jax.random as jr

from ... import analysis
from ...models import Attention
from ...risks import risk
from .. import Lab, once
from .runs import four_components, separate_model


@once
def merged_restarts(lab: Lab, heads: int = 3) -> analysis.StationaryPoints:
    """Stationary points found from random weights, with no help from theory."""
    count, template = lab.scaled(20, 60, 400), Attention.merged(jr.key(0), 4, heads, 1.0)
    return analysis.find_stationary_points(
        risk(four_components(), template), template, count, jr.key(4)
    )


@once
def separate_restarts(lab: Lab) -> analysis.StationaryPoints:
    """Stationary points found from random weights, with no help from theory."""
    count, template = lab.scaled(20, 100, 600), separate_model(1.0)
    return analysis.find_stationary_points(
        risk(four_components(), template), template, count, jr.key(4)
    )
