"""Power: the smallest relative change of a prediction that a check notices."""

import numpy as np
import pytest

from iclflow.papers import Check, power_of


def check(predicted, measured, tolerance, comparison="absolute", error=None):
    return Check("x", predicted, measured, tolerance, comparison, error)


@pytest.mark.parametrize(
    "given",
    [
        check(2.0, 2.01, 0.05),
        check([2.0, -4.0], [2.01, -4.02], 0.05),
        check(2.0, 1.99, 0.03, "relative"),
        check([1.0, 3.0], [1.1, 2.9], 4.0, "standard errors", [0.1, 0.2]),
        check(2.0, 3.0, 0.0, "at least"),
        check(2.0, 1.0, 0.1, "at most"),
    ],
)
def test_a_larger_change_fails_and_a_smaller_one_passes_to_one_side_at_least(given):
    power = power_of(given)
    assert power is not None and power > 0

    def passes(change):
        bent = np.asarray(given.predicted) * (1 + change)
        return check(bent, given.measured, _fixed(given), _kind(given), given.standard_error).passed

    sides = (1,) if given.comparison == "at least" else (-1,) if _bounds(given) else (1, -1)
    assert not any(passes(sign * power * (1 + 1e-9)) for sign in sides)
    assert any(passes(sign * power * (1 - 1e-6)) for sign in sides)


def _bounds(given):
    return given.comparison == "at most"


def _kind(given):
    # The tolerance of a relative check is a share of the prediction that was made.
    return "absolute" if given.comparison == "relative" else given.comparison


def _fixed(given):
    share = np.abs(given.predicted) if given.comparison == "relative" else 1.0
    return float(given.tolerance * share)


def test_counts_notice_every_change():
    assert power_of(check(3, 3, comparison="equal", tolerance=0.0)) == 0.0


def test_a_prediction_of_zero_has_no_relative_change():
    assert power_of(check(np.zeros(2), [0.0, 1e-3], 1e-2)) is None


def test_a_prediction_of_zero_is_a_share_of_its_scale():
    assert power_of(Check("x", 0.0, 1e-3, 1e-2, scale=2.0)) == pytest.approx(0.0055)
