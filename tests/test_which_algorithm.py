"""Which estimator a model implements: models that are one, models near one, and real plateaus."""

from functools import cache

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from helpers import deterministic_separate
from iclflow.analysis import (
    Algorithm,
    AlgorithmWatch,
    Match,
    compare,
    known_estimators,
    plateaus,
    which_algorithm,
)
from iclflow.analysis._which_algorithm import _bayes_as_ridge
from iclflow.errors import InputError
from iclflow.estimators import (
    Bayes,
    GradientStep,
    PopulationPCR,
    PreconditionedStep,
    SubspaceLeastSquares,
    Zero,
)
from iclflow.flows import gradient_flow
from iclflow.models import Attention, Diagonal, Merged
from iclflow.risks import exact_bilinear_risk
from iclflow.tasks import (
    LinearRegression,
    MultiTaskRegression,
    in_context_in_weight,
    isotropic,
)
from iclflow.trajectory import Trajectory

COUNT = 1000


def four_components(**options) -> LinearRegression:
    return LinearRegression([0.4, 0.3, 0.2, 0.1], 31, **options)


@cache
def staircase_run() -> Trajectory:
    model = deterministic_separate(1e-3)
    return gradient_flow(model, exact_bilinear_risk(four_components(), model), progress=False)


def test_each_plateau_is_pcr_with_as_many_components():
    run, task = staircase_run(), four_components()
    found = plateaus(run)
    models = [run.model_at((p.start + p.end) / 2) for p in found[:-1]] + [run.final]
    for m, model in enumerate(models):
        result = which_algorithm(model, task, count=COUNT)
        assert result.best.name == PopulationPCR(task, m).name
        # Idle heads are of the order of the initial weights, 1e-3; the run ends 1e-6 of the way
        # down before the minimum, and distances are the square root of that.
        assert result.best.distance < 2e-3
        assert result.matches[1].distance > 0.1
        assert str(result).startswith(f"{result.best.name}, relative distance ")
        assert "; next: " in str(result)


@pytest.mark.slow
def test_a_model_that_is_an_estimator_is_recognised():
    # With a prior that is the same in every direction, ridge regression would be Bayes.
    task = four_components(noise=0.2, prior_covariance=np.diag([1.0, 2.0, 1.0, 0.5]))
    for estimator in (SubspaceLeastSquares(task, 2), PopulationPCR(task, 3), known(task, "ridge")):
        result = which_algorithm(estimator, task, count=COUNT)
        assert (result.best.name, result.best.distance) == (estimator.name, 0.0)
        assert result.best.standard_error == 0
        distances = [match.distance for match in result.matches]
        assert distances == sorted(distances)


def known(task, word):
    return next(e for e in known_estimators(task) if e.name.startswith(word))


def test_the_step_size_that_fits_is_found():
    task = four_components()
    result = which_algorithm(GradientStep(2.5), task, count=COUNT)
    assert result.best.name == "one gradient step"
    assert result.best.step_size == pytest.approx(2.5, rel=1e-12)
    assert result.best.distance < 1e-12
    assert float(result.best.estimator.step_size) == pytest.approx(2.5, rel=1e-12)
    assert "η = 2.5" in str(result.best)
    # For any other matrix the best step is the projection on the identity.
    model = PreconditionedStep(jnp.asarray(np.diag([1.0, 2.0, 3.0, 4.0])))
    steps = (GradientStep(1.0),)
    fitted = which_algorithm(model, task, jr.key(1), COUNT, steps)["one gradient step"]
    # The sequences that the step was fitted on, so that nothing is left to chance.
    sequences = task.sample(jr.split(jr.key(1), 1)[0], COUNT)
    own, unit = (np.asarray(m.predict(sequences)) for m in (model, *steps))
    expected = np.mean(own * unit) / np.mean(unit**2)
    assert fitted.step_size == pytest.approx(expected, rel=1e-12)
    assert fitted.distance == pytest.approx(
        np.sqrt(np.mean((own - expected * unit) ** 2) / np.mean(own**2)), rel=1e-12
    )


def test_distance_is_relative_to_the_model():
    task = four_components()
    estimator = PopulationPCR(task, 2)
    louder = eqx.tree_at(lambda e: e.gains, estimator, 1.25 * estimator.gains)
    match = which_algorithm(louder, task, count=COUNT)[estimator.name]
    assert match.distance == pytest.approx(0.2, rel=1e-12)
    # The ratio is the same in every sequence.
    assert match.standard_error < 1e-12


def test_standard_errors_are_those_of_repeated_draws():
    task = four_components()
    model, name = PopulationPCR(task, 3), PopulationPCR(task, 2).name
    compared = (PopulationPCR(task, 2),)
    results = [which_algorithm(model, task, jr.key(i), COUNT, compared)[name] for i in range(30)]
    spread = np.std([r.distance for r in results], ddof=1)
    stated = np.mean([r.standard_error for r in results])
    # A deviation from 30 draws is known to 13 %; products of Gaussians have heavy tails.
    assert stated == pytest.approx(spread, rel=0.4)
    exact = np.sqrt(_power(task, 2) / (_power(task, 0) + _power(task, 1) + _power(task, 2)))
    mean = np.mean([r.distance for r in results])
    assert abs(mean - exact) < 4 * spread / np.sqrt(30)


def _power(task, d):
    """E of the squared prediction of component d alone: a² C_dd λ_d."""
    value = np.array([0.4, 0.3, 0.2, 0.1])[d]
    gain = 1 / (value * 32 / 31 + 1 / 31)
    return gain**2 * value * (32 / 31 * value**2 + value / 31)


def test_predictions_of_almost_nothing_are_zero():
    task = four_components()
    tiny = PreconditionedStep(jnp.asarray(1e-6 * np.eye(4)))
    result = which_algorithm(tiny, task, count=COUNT)
    assert result.best.name == "PCR with 0 components" and result.best.distance < 1e-3
    assert which_algorithm(Zero(), task, count=COUNT).best.distance == 0


def test_other_normalisations_are_compared_with_their_own_kind():
    task = LinearRegression([0.4, 0.3, 0.2, 0.1], [10, 31])
    model = PopulationPCR(task, 2, "tokens")
    result = which_algorithm(model, task, count=COUNT)
    assert (result.best.name, result.best.distance) == ("PCR with 2 components", 0.0)


@pytest.mark.slow
def test_softmax_models_and_other_tasks_can_be_compared():
    task = in_context_in_weight(four_components(), 0.5)
    model = Attention.merged(jr.key(0), 4, 2, 1.0, activation="softmax")
    result = which_algorithm(model, task, count=COUNT)
    assert {"zero", "Bayes"} <= {match.name for match in result.matches}
    assert all(np.isfinite(match.distance) for match in result.matches)


def test_draws_repeat_and_can_be_changed():
    task = four_components()
    model = Attention.merged(jr.key(0), 4, 2, 1.0)
    first, second = (which_algorithm(model, task, count=COUNT) for _ in range(2))
    assert [m.distance for m in first.matches] == [m.distance for m in second.matches]
    other = which_algorithm(model, task, jr.key(1), COUNT)
    assert other.best.distance != first.best.distance


def match(distance, error=0.0):
    return Match("zero", distance, error, Zero())


@pytest.mark.parametrize(
    ("distance", "error", "words"),
    [
        (1.0005, 0.0004, "100.05 ± 0.04 %"),
        (0.123, 0.021, "12 ± 2 %"),
        (0.0123, 0.0021, "1.2 ± 0.2 %"),
        (0.0123, 1e-6, "1.23 %"),
        (0.2, 0.0, "20.00 %"),
        (3e-7, 1e-9, "below 0.01 %"),
        (25.3, 0.4, "25 times its size"),
        (0.4, np.inf, "about 40 %"),
        (np.inf, np.inf, "far"),
        (np.nan, np.nan, "far"),
    ],
)
def test_distances_are_readable(distance, error, words):
    assert str(match(distance, error)) == f"zero, relative distance {words}"


def test_no_algorithm_is_named_when_none_is_near():
    near, far = Algorithm((match(0.3), match(0.5))), Algorithm((match(0.31), match(0.5)))
    assert near.known and str(near).startswith("zero, relative distance 30")
    assert not far.known
    assert str(far).startswith("none of the known estimators; nearest: zero, relative distance 31")


def two_heads(dim) -> Attention:
    return Attention(Merged.of(jnp.asarray(np.ones(2)), jnp.asarray(np.ones((2, dim, dim)))))


def test_matrices_are_fitted_on_other_sequences_than_they_are_compared_on():
    """Noise has no matrix: the entries that are fitted to it come on top of it."""
    watch = AlgorithmWatch(LinearRegression([1.0, 0.7, 0.4, 0.2], 20), fitted=True, count=100)
    noise = np.random.default_rng(0).standard_normal((100, 1))
    (found,) = watch.rank(noise) or ()
    assert found["one debiased preconditioned step"].distance > 1
    (found,) = (
        AlgorithmWatch(LinearRegression([1.0, 0.5], 9), fitted=True, count=4).rank(noise[:4]) or ()
    )
    with pytest.raises(KeyError):  # three sequences do not determine four entries
        found["one debiased preconditioned step"]


def test_bad_input_is_refused():
    task = four_components()
    several = MultiTaskRegression([[0, 1], [2, 3]], context=31)
    with pytest.raises(ValueError, match="predicts 1 label .* the task has 2 labels"):
        which_algorithm(two_heads(4), several)
    with pytest.raises(ValueError, match="The model has D = 3 and the task D = 4"):
        which_algorithm(two_heads(3), task)
    with pytest.raises(ValueError, match="at least 2"):
        which_algorithm(Zero(), task, count=1)
    with pytest.raises(KeyError, match="No estimator is called"):
        which_algorithm(Zero(), task, count=COUNT, estimators=(Zero(),))["Bayes"]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_one_head_is_kernel_regression_whatever_its_sign(sign):
    model = Attention(Diagonal(jnp.asarray([sign * 0.52]), jnp.asarray([sign * 1.5]), 4))
    result = which_algorithm(model, isotropic(4, 31, 0.1), count=COUNT)
    assert result.best.name == "kernel regression" and result.best.distance < 1e-3
    assert float(result.best.estimator.omega) == pytest.approx(sign * 0.52, rel=1e-3)


@pytest.mark.slow
def test_all_labels_are_compared_on_the_same_sequences_at_once():
    task = MultiTaskRegression([[0, 1], [1, 2]], context=12, noise=0.1)
    model = Attention(Diagonal(jnp.asarray([0.4, -0.4]), jnp.asarray([[1.0, 0.5], [-1.0, 0.2]]), 3))
    found = compare(model, task, count=COUNT)
    for label, algorithm in enumerate(found.algorithms):
        alone = which_algorithm(model, task, count=COUNT, label=label)
        assert str(alone) == str(algorithm)
        assert [m.distance for m in alone.matches] == [m.distance for m in algorithm.matches]
    sequences = task.sample(jr.split(jr.key(0), 1)[0], COUNT)
    errors = np.sum(np.asarray(sequences.y_query - model.predict(sequences)) ** 2, -1)
    assert float(found.loss.value) == pytest.approx(errors.mean(), rel=1e-12)
    assert float(found.loss.standard_error) == pytest.approx(
        errors.std(ddof=1) / COUNT**0.5, rel=1e-12
    )


def test_bayes_is_quicker_by_ridge_and_the_same():
    for noise in (0.0, 0.2):
        task = LinearRegression([0.5, 1.0, 2.0], 5, noise=noise, prior_covariance=0.3 * np.eye(3))
        sequences = task.sample(jr.key(1), 50)
        quick = _bayes_as_ridge(Bayes(task))
        assert not isinstance(quick, Bayes)
        expected = np.asarray(task.bayes_predict(sequences))
        assert np.asarray(quick.predict(sequences)) == pytest.approx(expected, abs=1e-9)
    assert isinstance(
        _bayes_as_ridge(Bayes(LinearRegression([1.0, 2.0], 5, prior_mean=[1, 0]))), Bayes
    )


# Plain functions --------------------------------------------------------------------------------


def numpy_step(x, y, query):
    """One gradient step of size 0.7, at every position or for the query alone."""
    assert all(isinstance(part, np.ndarray) for part in (x, y, query))
    return 0.7 * np.einsum("pn,pnd,pd->p", y, x, query) / x.shape[1]


@pytest.mark.parametrize("context", [12, (6, 12)], ids=["one length", "two lengths"])
def test_a_plain_function_is_a_model(context):
    task = LinearRegression(eigenvalues=[0.6, 0.4], context=context, noise=0.1)
    known = (GradientStep(1.0), Zero())
    how = {"count": 300, "estimators": known}
    found = which_algorithm(numpy_step, task, **how)
    # The same predictions by our own class, which is compiled: equal up to rounding.
    own = which_algorithm(GradientStep(0.7), task, **how)
    for one, other in zip(found.matches, own.matches, strict=True):
        assert one.name == other.name and one.step_size == pytest.approx(other.step_size)
        assert one.distance == pytest.approx(other.distance, abs=1e-12)
    assert found.best.distance < 1e-12 and found.best.step_size == pytest.approx(0.7)


def test_a_function_may_predict_at_every_position_and_several_labels():
    task = isotropic(2, 5)
    everywhere = lambda x, y, q: np.stack([numpy_step(x, y, q)] * 6, axis=1)
    how = {"count": 200, "estimators": (GradientStep(1.0), Zero())}
    alone = which_algorithm(numpy_step, task, **how)
    assert which_algorithm(everywhere, task, **how) == alone
    several = MultiTaskRegression([[0, 1], [2, 3]], context=5)

    def each_label(x, y, query):
        assert y.shape[1:] == (5, 2)
        return np.einsum("pni,pnd,pd->pi", y, x, query) / 5

    found = compare(each_label, several, count=200)
    assert len(found.algorithms) == 2


def test_a_function_of_another_shape_is_refused_and_so_is_what_is_none(unchecked):
    task = isotropic(2, 5)
    with pytest.raises(InputError, match=r"returned the shape \(5, 2000\): must return \(2"):
        which_algorithm(lambda x, y, q: np.zeros((5, len(x))), task, count=200)
    with pytest.raises(InputError, match=r"`model` = 3: must be a model or a function of"):
        which_algorithm(3, task, count=200)
