"""Steps of sampled softmax training: ours against eager PyTorch, on one device in one run."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.random as jr

from ..flows import Linear, adam, adam_rule, descend_ensemble, init_many
from ..models import FactoredAttention, MergedKQ
from ..risks import IntegratedRisk, SampledRisk
from ..tasks import isotropic
from ._machine import missing_torch
from ._row import Bar, Row, Timing, measure
from ._softmax_loop import EagerLoop

PEER = "PyTorch, eager"
DIM, CONTEXT, NOISE, BATCH, HEADS, LEARNING_RATE = 5, 40, 0.1, 256, 2, 1e-3


class Setting(NamedTuple):
    """How much to compute.

    **Fields:**

    - `seconds`: for which the peer is timed in each round.
    - `steps`: of one timed run of ours.
    - `members`, `ensemble_steps`: of the ensemble.
    - `rounds`: how often ours and the peer take turns.
    - `judged`: whether these are the sizes that the bars are about.
    """

    seconds: float
    steps: int
    members: int
    ensemble_steps: int
    rounds: int
    judged: bool

    @staticmethod
    def here() -> "Setting":
        """What takes about a minute on this kind of device."""
        if jax.default_backend() == "cpu":
            return Setting(3.0, 3000, 16, 200, 4, True)
        return Setting(3.0, 50_000, 1024, 1000, 4, True)


class Bars(NamedTuple):
    """What is promised on a kind of device; None where nothing is."""

    plain: Bar | None = None
    equal_noise: Bar | None = None
    ensemble: Bar | None = None

    @staticmethod
    def here() -> "Bars":
        if jax.default_backend() == "cpu":
            return Bars(Bar(8, at_least=True), Bar(20, at_least=True), Bar(15, at_least=True))
        if "H200" in jax.devices()[0].device_kind:
            return Bars(plain=Bar(50, at_least=True), ensemble=Bar(10_000, at_least=True))
        return Bars()


class Contestant(NamedTuple):
    """A training run of ours, and the steps it takes, those of all its members together."""

    name: str
    run: Callable[[], object]
    steps: int


def speed_rows(setting: Setting, noise_ratio: Row) -> list[Row]:
    """Time a step of each contestant, and the ratios.

    **Arguments:**

    - `noise_ratio`: how many times as much variance a plain gradient has as an integrated one.
    """
    group = f"a step of Adam on {_device()}: d = 5, L = 40, batch 256, two heads"
    contestants = [_plain(setting.steps), _integrated(setting.steps), _ensemble(setting)]
    missing = missing_torch()
    seconds = {contestant.name: [] for contestant in contestants}
    theirs, peer = [], None
    if missing is None:
        device = "cpu" if jax.default_backend() == "cpu" else "cuda"
        peer = EagerLoop(_factored(), BATCH, CONTEXT, NOISE, LEARNING_RATE, device)
    for contestant in contestants:
        contestant.run()  # compiles
    # In turns, so that a machine that is busy for a while is busy for both sides.
    for _ in range(setting.rounds):
        for name, run, steps in contestants:
            seconds[name] += measure(run, 1).times(1 / steps).seconds
        theirs += [] if peer is None else peer.timed(setting.seconds).seconds
    ours = {name: Timing(tuple(values)) for name, values in seconds.items()}
    rows = [
        ours[name].row(group, f"ours: {name}", "µs", note=f"float32, {steps} steps a run")
        for name, _, steps in contestants
    ]
    if peer is None:
        return [*rows, Row(group, PEER, None, note=missing or "")]
    bars = Bars.here() if setting.judged else Bars()
    words = f"{peer.threads} threads" if device == "cpu" else "waited for once a block of steps"
    whole = Timing(tuple(theirs))
    ratio = lambda index, bar=None: whole.ratio_row(
        group, f"{PEER} ÷ ours: {contestants[index].name}", ours[contestants[index].name], bar=bar
    )
    return [
        whole.row(group, PEER, "µs", note=f"float32, {words}"),
        *rows,
        ratio(0, bars.plain),
        ratio(1),
        _at_equal_noise(ratio(1, bars.equal_noise), noise_ratio),
        ratio(2, bars.ensemble),
    ]


def _at_equal_noise(ratio: Row, noise_ratio: Row) -> Row:
    """The ratio of times, times that of variances: how much longer the peer takes for a gradient
    with as little noise."""
    if ratio.value is None or noise_ratio.value is None:
        return ratio
    assert ratio.spread is not None
    return Row(
        ratio.group,
        f"{ratio.name}, at equal variance of the gradient",
        ratio.value * noise_ratio.value,
        "×",
        (ratio.spread[0] * noise_ratio.value, ratio.spread[1] * noise_ratio.value),
        ratio.repeats,
        ratio.bar,
        f"the ratio of times above, times {noise_ratio.value:.3g}",
    )


def _plain(steps: int) -> Contestant:
    model, risk = _factored(), SampledRisk(_task(), BATCH, precision="float32")
    return Contestant("plain", lambda: _train(model, risk, steps), steps)


def _integrated(steps: int) -> Contestant:
    model = MergedKQ.init(jr.key(0), DIM, HEADS, 0.1, activation="softmax", self_attention=False)
    risk = IntegratedRisk(_task(), BATCH, precision="float32")
    return Contestant("labels integrated out", lambda: _train(model, risk, steps), steps)


def _ensemble(setting: Setting) -> Contestant:
    count, steps = setting.members, setting.ensemble_steps
    models = init_many(FactoredAttention.init, jr.split(jr.key(0), count), dim=DIM, heads=HEADS)
    risk, keys = SampledRisk(_task(), BATCH, precision="float32"), jr.split(jr.key(1), count)
    run = lambda: descend_ensemble(
        models, risk, adam_rule(LEARNING_RATE), steps, keys=keys, save=Linear(2), progress=False
    )
    return Contestant(f"plain, each of {count} seeds together", run, count * steps)


def _train(model, risk, steps: int) -> None:
    adam(model, risk, LEARNING_RATE, steps, key=jr.key(1), save=Linear(2), progress=False)


def _task():
    return isotropic(DIM, CONTEXT, NOISE)


def _factored() -> FactoredAttention:
    return FactoredAttention.init(jr.key(0), DIM, HEADS)


def _device() -> str:
    kind = jax.devices()[0].device_kind
    return "this processor" if jax.default_backend() == "cpu" else kind
