"""Whole steps of training in a kernel, here by an interpreter, against steps one by one."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from iclflow.errors import InputError
from iclflow.flows import (
    Layout,
    SaveAtTimes,
    adam_rule,
    descend,
    descend_ensemble,
    init_many,
    sgd_rule,
)
from iclflow.flows._descent_program import State, _many_steps
from iclflow.flows._rules import rule_of
from iclflow.models import Attention
from iclflow.risks import IntegratedRisk, SampledRisk, sampled_risk
from iclflow.risks.fused import _steps as steps_module
from iclflow.risks.fused import loss_and_slopes, words_of
from iclflow.risks.fused._products import Table, columns, padded, products_of
from iclflow.tasks import LinearRegression, MultiTaskRegression, isotropic

KEY = jr.key(0)
SOFTMAX = {"activation": "softmax", "self_attention": False}
# Both paths see the same sequences and do the same arithmetic in float32, and add up in another
# order: gradients differ by some 1e-7 of their largest entry. Adam divides each entry by its own
# size, so that this error counts in full where an entry is small. After tens of steps weights
# differ by up to 4e-6 of the way that they have come, as measured. Ten times that is allowed; a
# step too many or a wrong key is off by more than 1e-2 of the way.
ROUNDING = 4e-5


def turned(size: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(0).normal(size=(size, size)))[0]


TILTED = turned(2) @ np.diag([1.0, 0.4]) @ turned(2).T
ANISOTROPIC = LinearRegression(
    covariance=(TILTED + TILTED.T) / 2,
    context=[3, 5],
    noise=0.3,
    prior_mean=[0.3, -0.2],
    prior_covariance=(TILTED + TILTED.T),
)
TWO_TASKS = MultiTaskRegression(
    [[0, 1], [1]], 2, 4, noise=[0.1, 0.3], input_rotation=turned(2), output_rotation=turned(2)
)


def both(make, steps: int, rule, model):
    """The first weights, and the last by steps one by one and by whole steps in a kernel."""
    save = SaveAtTimes((steps // 3, steps))
    run = lambda engine: descend(model, make(engine), rule, steps, key=KEY, save=save)
    weights = Layout.of(model).vectors
    return weights(model)[0], *(weights(run(name).final)[0] for name in ("auto", "triton_steps"))


def assert_same(start, one, other, bound=ROUNDING):
    way = np.abs(one - start).max()
    assert way > 0.01  # so that there is something to compare
    np.testing.assert_allclose(other, one, rtol=0, atol=bound * way)


# ---- the kernel against steps one by one


@pytest.mark.slow
@pytest.mark.parametrize(("make", "model", "rule"), [
    (lambda engine: SampledRisk(isotropic(2, 5, 0.1), 24, False, "float32", engine),
     lambda: Attention.factored(KEY, 2, 2), adam_rule(1e-2)),
    (lambda engine: IntegratedRisk(isotropic(2, 5, 0.1), 16, "float32", engine),
     lambda: Attention.merged(KEY, 2, 2, 0.3, **SOFTMAX), sgd_rule(0.05, momentum=0.9)),
    (lambda engine: SampledRisk(ANISOTROPIC, 16, False, "float32", engine),
     lambda: Attention.merged(KEY, 2, 2, 0.3, blind=False, **SOFTMAX), sgd_rule(0.05)),
    (lambda engine: IntegratedRisk(ANISOTROPIC, 16, "float32", engine),
     lambda: Attention.factored(KEY, 2, 1, width=3, blind=True), adam_rule(1e-2)),
    (lambda engine: SampledRisk(TWO_TASKS, 16, False, "float32", engine),
     lambda: Attention.factored(KEY, 2, 1, labels=2), adam_rule(1e-2)),
    (lambda engine: IntegratedRisk(TWO_TASKS, 16, "float32", engine),
     lambda: Attention.merged(KEY, 2, 2, 0.3, labels=2, **SOFTMAX), adam_rule(1e-2)),
    (lambda engine: IntegratedRisk(isotropic(2, 5, 0.1), 16, "float32", engine),
     lambda: Attention.diagonal(KEY, 2, 3, 0.5, per_coordinate=True), adam_rule(1e-2)),
])  # fmt: skip
def test_whole_steps_train_as_steps_one_by_one_do(make, model, rule):
    assert_same(*both(make, 40, rule, model()))


@pytest.mark.slow
def test_a_thousand_steps_end_where_steps_one_by_one_end():
    """Rounding of so many steps: each adds up to 1e-7 of a step's length, at random, and training
    towards a minimum forgets it. A wrong step anywhere would stay at 1e-3 of the way."""
    make = lambda engine: IntegratedRisk(isotropic(1, 4, 0.1), 16, "float32", engine)
    model = Attention.factored(KEY, 1, 2, blind=True)
    assert_same(*both(make, 1000, adam_rule(3e-3), model), bound=1e-4)


@pytest.mark.slow
def test_a_batch_larger_than_a_program_is_summed_in_parts(monkeypatch):
    monkeypatch.setattr(steps_module, "_FEW_WARPS", 1)
    make = lambda engine: IntegratedRisk(isotropic(1, 4, 0.1), 75, "float32", engine)
    assert_same(*both(make, 30, adam_rule(1e-2), Attention.merged(KEY, 1, 2, 0.3, **SOFTMAX)))


@pytest.mark.slow
def test_an_ensemble_on_tasks_of_its_own_trains_as_its_members_do():
    tasks = [isotropic(1, 4, noise) for noise in (0.1, 0.4)]
    risk = lambda engine: [IntegratedRisk(task, 16, "float32", engine) for task in tasks]
    start = lambda key: Attention.merged(key, 1, 2, 0.3, **SOFTMAX)
    models, keys = init_many(start, jr.split(KEY, 2)), jr.split(jr.key(1), 2)
    run = lambda engine: descend_ensemble(
        models, risk(engine), adam_rule(1e-2), 30, keys=keys, save=SaveAtTimes((30,))
    )
    starts = Layout.of(start(KEY)).vectors(models)
    one, other = run("auto").weights[1::2], run("triton_steps").weights[1::2]
    assert np.abs(one[0] - one[1]).max() > 0.01  # two tasks
    for each in zip(starts, one, other, strict=True):
        assert_same(*each)


# ---- what it is made of


def circuits_of(model):
    layout = Layout.of(model)

    def function(weights):
        model = layout.model(weights)
        return jnp.concatenate([model.kq().ravel(), model.ov().ravel()])

    return function, layout.size


def followed(table: Table, x, y) -> np.ndarray:
    first, second, factor = map(np.asarray, table)
    return np.sum(factor * x[first] * y[second], 0)


@pytest.mark.parametrize("make", [
    lambda: Attention.factored(KEY, 3, 2, width=4),
    lambda: Attention.factored(KEY, 2, 2, labels=2, blind=True),
    lambda: Attention.merged(KEY, 3, 2, blind=False, **SOFTMAX),
    lambda: Attention.diagonal(KEY, 3, 2, 0.5, per_coordinate=True),
])  # fmt: skip
def test_tables_give_circuits_and_the_chain_rule_through_them(make):
    function, size = circuits_of(make())
    weights = np.random.default_rng(1).normal(size=size)
    value, back = jax.vjp(function, jnp.asarray(weights))
    slopes = np.random.default_rng(2).normal(size=value.shape)
    terms = products_of(function, size)
    numbers = np.append(weights, 1.0)
    found = followed(Table.of(terms, padded(value.size)), numbers, numbers)
    # Factors are kept in float32.
    np.testing.assert_allclose(found[: value.size], value, rtol=1e-6, atol=1e-6)
    assert not np.any(found[value.size :])
    found = followed(Table.of(terms.transposed(size), padded(size + 1)), slopes, numbers)
    np.testing.assert_allclose(found[:size], back(jnp.asarray(slopes))[0], rtol=1e-5, atol=1e-6)
    assert not np.any(found[size:])


@pytest.mark.parametrize("function", [jnp.sin, lambda w: w**3, lambda w: w[:1] * w[1] * w[2],
                                      lambda w: w + 1.0])  # fmt: skip
def test_a_function_that_is_no_sum_of_products_of_two_is_known_as_such(function):
    assert products_of(function, 3) is None


def test_squares_and_single_numbers_are_products_too():
    terms = products_of(lambda w: jnp.stack([3 * w[0] ** 2 + 2 * w[1], w[0] * w[1]]), 2)
    found = {tuple(map(int, t)): f for *t, f in zip(terms.row, terms.first, terms.second,
                                                     np.asarray(terms.factor))}  # fmt: skip
    assert found == pytest.approx({(0, 0, 0): 3.0, (0, 1, 2): 2.0, (1, 0, 1): 1.0})


def test_tables_are_as_wide_as_a_kernel_needs():
    assert [padded(size) for size in (1, 3, 128, 229, 512, 513, 1100)] == [
        1, 4, 128, 256, 512, 1024, 1536,
    ]  # fmt: skip
    for width in (4, 512, 1536):
        parts = [range(width)[part] for part in columns(width)]
        assert [n for part in parts for n in part] == list(range(width))


# ---- where it is used


@pytest.fixture
def calls(monkeypatch):
    """How often a kernel of whole steps was made."""
    made, original = [], steps_module.steps_in_kernel

    def counted(*arguments, **options):
        made.append(original(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(steps_module, "steps_in_kernel", counted)
    return made


def traced(model, risk, optimiser):
    """Traces a run of two steps, and computes nothing."""
    layout, rule = Layout.of(model), rule_of(optimiser)
    weights = layout.vector(model)
    state = State(jnp.asarray(0), weights, rule.transform.init(weights), KEY, None)
    return _many_steps(layout, rule, risk, state, 1)


def small(engine="triton_steps", **options):
    return SampledRisk(isotropic(2, 5), 16, precision="float32", engine=engine, **options)


def test_it_is_used_only_where_it_is_asked_for(calls):
    model = Attention.factored(KEY, 2, 2)
    for engine in ("auto", "triton"):
        assert traced(model, small(engine), adam_rule(1e-2)) is None
    assert not calls
    assert traced(model, small(), adam_rule(1e-2)) is not None
    assert len(calls) == 1


@pytest.mark.parametrize(("model", "risk", "optimiser"), [
    (lambda: Attention.factored(KEY, 2, 2), small, lambda: optax.lion(1e-2)),  # has no name
    (lambda: Attention.merged(KEY, 2, 2), small, lambda: adam_rule(1e-2)),  # linear
    (lambda: Attention.factored(KEY, 2, 2), lambda: small(posterior_target=True),
     lambda: adam_rule(1e-2)),
    (lambda: Attention.factored(KEY, 20, 2),
     lambda: SampledRisk(isotropic(20, 5), 16, precision="float32", engine="triton_steps"),
     lambda: adam_rule(1e-2)),  # too many sums
])  # fmt: skip
def test_what_it_is_not_for_is_trained_step_by_step(model, risk, optimiser):
    assert traced(model(), risk(), optimiser()) is None


def test_the_engine_is_one_of_those_that_exist(unchecked):
    with pytest.raises(InputError, match="`engine` = 'cuda': must be one of 'auto', 'triton'"):
        SampledRisk(isotropic(2, 5), 16, engine="cuda")
    model = Attention.factored(KEY, 2, 2, blind=True)
    for integrate in ("labels", "none"):
        risk = sampled_risk(isotropic(2, 5), model, 16, integrate, "float32", "triton_steps")
        assert risk.engine == "triton_steps"


@pytest.mark.slow
@pytest.mark.parametrize("rule", [adam_rule(1e-2), sgd_rule(1e-2, momentum=0.9)])
def test_the_kernel_is_compiled_for_a_gpu_as_far_as_can_be_without_one(rule):
    """As far as Triton's own program: types, and sizes that are powers of two, are checked here."""
    model, risk = Attention.factored(KEY, 3, 2), SampledRisk(isotropic(3, 5), 24, False, "float32")
    law, layout = risk.white, Layout.of(model)
    spec = law.spec(model, True, 24)
    weights = layout.vector(model)
    memory = rule.transform.init(weights)

    def train(weights, memory, words):
        take = steps_module.steps_in_kernel(
            law, spec, layout.model, rule.move, rule.factor, weights, memory
        )
        return take(weights, memory, words, len(words))

    words = jnp.zeros((5, 2), jnp.uint32)
    program = eqx.filter_jit(train) if False else jax.jit(train)
    lowered = program.trace(weights, memory, words).lower(lowering_platforms=("cuda",))
    assert "iclflow_training_steps" in lowered.as_text()


@pytest.mark.slow
def test_the_kernel_of_mosaic_finds_what_the_pass_of_this_device_finds():
    """By JAX's interpreter of GPU programs, which takes half a minute for some tokens."""
    from jax._src.pallas.mosaic_gpu.interpret.params import InterpretGPUParams

    from iclflow.risks.fused import _mosaic

    batch = 140  # two programs, the second one not full
    model, risk = (
        Attention.factored(KEY, 1, 1),
        SampledRisk(isotropic(1, 2), batch, False, "float32"),
    )
    law, spec = risk.white, risk.white.spec(model, True, batch, "mosaic_gpu")
    numbers = law.numbers(words_of(KEY), *law.circuits(model, True), True)
    interpreted = lambda: _mosaic.kernel_sums(spec, numbers, interpret=InterpretGPUParams())
    found, expected = jax.jit(interpreted)(), loss_and_slopes(spec, numbers)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-6 * np.abs(other).max())
