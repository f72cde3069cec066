"""Steps of sampled softmax training: ours against PyTorch and plain JAX, in one run."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

from iclflow.risks.fused import can_be_fused, loss_and_slopes, words_of

from ._ceiling import ceiling_rows
from ._jax_loop import PlainScan
from ._machine import missing_torch
from ._race import Contestant, Peer, Result, race
from ._row import Bar, Row
from ._softmax_loop import TorchLoop
from ._softmax_runs import LEARNING_RATE, Size, integrated, plain, together

EAGER, COMPILED = "PyTorch, eager", "PyTorch, compiled"
ONE = Size()


class Setting(NamedTuple):
    """How much to compute.

    **Fields:**

    - `seconds`: for which the peer is timed in each round.
    - `steps`: of one timed run of ours.
    - `members`, `ensemble_steps`: of the ensemble.
    - `rounds`: how often ours and the peer take turns.
    - `judged`: whether these are the sizes that the bars are about; if so, PyTorch is compiled
      too, which takes it half a minute.
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
        return Setting(2.0, 20_000, 1024, 1000, 4, True)


class Bars(NamedTuple):
    """What is promised on a kind of device; None where nothing is."""

    plain: Bar | None = None
    equal_noise: Bar | None = None
    ensemble: Bar | None = None
    million_steps: Bar | None = None
    share_of_pass: Bar | None = None
    wide: Bar | None = None

    @staticmethod
    def here() -> "Bars":
        if jax.default_backend() == "cpu":
            return Bars(Bar(8, at_least=True), Bar(20, at_least=True), Bar(15, at_least=True))
        if "H200" in jax.devices()[0].device_kind:
            return Bars(
                plain=Bar(50, at_least=True),
                ensemble=Bar(10_000, at_least=True),
                million_steps=Bar(4, at_least=True),
                share_of_pass=Bar(60, at_least=True),
                wide=Bar(2000, at_least=True),
            )
        return Bars()


def speed_rows(setting: Setting, noise_ratio: Row) -> list[Row]:
    """Time a step of each contestant, and the ratios.

    **Arguments:**

    - `noise_ratio`: how many times as much variance a plain gradient has as an integrated one.
    """
    group = _group(ONE)
    alone, averaged = _plain(setting.steps), _integrated(setting.steps)
    seeds, bare = _ensemble(setting), _bare(setting)
    single = scan(max(1, setting.steps // 4))
    scans = scan(max(1, setting.ensemble_steps // 4), setting.members)
    ours = [alone, averaged, seeds, bare, single, scans]
    peers, missing = find_peers(ONE, setting.judged)
    found = race(ours, peers, setting.rounds, setting.seconds)
    bars = Bars.here() if setting.judged else Bars()
    rows = missing.copy()
    for name, result in found.items():
        rows += result.rows(group, note=_note(name, peers))
    ratio = lambda peer, own, bar=None: _ratio(group, found, peer, own.name, bar)
    for peer in peers:
        judged = bars if peer.name == EAGER else Bars()
        rows += [
            ratio(peer.name, alone, judged.plain),
            ratio(peer.name, averaged),
            _at_equal_noise(ratio(peer.name, averaged, judged.equal_noise), noise_ratio),
            ratio(peer.name, seeds, judged.ensemble),
        ]
    rows += [ratio(single.name, alone), ratio(scans.name, seeds)]
    step, of_pass = found[seeds.name].step, found[bare.name].step
    name = f"{seeds.name}: steps of training"
    per_second = Row(group, name, 1e-6 / step.median, "·10⁶/s", bar=bars.million_steps)
    share = 100 * of_pass.median / step.median
    name = f"{bare.name} ÷ the whole step"
    rows += [per_second, Row(group, name, share, "%", bar=bars.share_of_pass)]
    return rows + ceiling_rows(group, ONE.model(), ONE.risk(), of_pass, step)


def wide_rows(setting: Setting) -> list[Row]:
    """Eight heads, and d = 20: an ensemble against eager PyTorch."""
    rows, bars = [], Bars.here() if setting.judged else Bars()
    for one in (ONE._replace(heads=8), ONE._replace(dim=20)):
        group = _group(one)
        less = setting._replace(ensemble_steps=max(1, setting.ensemble_steps // 5))
        ours = _ensemble(less, one)
        peers, missing = find_peers(one, False)
        found = race([ours], peers, setting.rounds, setting.seconds / 2)
        rows += missing
        for name, result in found.items():
            rows += result.rows(group, note=_note(name, peers))
        rows += [_ratio(group, found, peer.name, ours.name, bars.wide) for peer in peers]
    return rows


def _group(one: Size) -> str:
    size = f"d = {one.dim}, L = {one.context}, batch {one.batch}, {one.heads} heads"
    return f"a step of Adam on {_device()}: {size}"


def find_peers(one: Size, compiled: bool) -> tuple[list[Peer], list[Row]]:
    """PyTorch, eager and compiled; or why it cannot be timed, as rows without a number."""
    group = _group(one)
    names = (EAGER, COMPILED)[: 1 + compiled]
    reason = missing_torch()
    if reason is not None:
        return [], [Row(group, name, None, note=reason) for name in names]
    device = "cpu" if jax.default_backend() == "cpu" else "cuda"
    peers, missing = [], []
    for name in names:
        with_compiler = name == COMPILED
        try:
            sizes = one.batch, one.context, one.noise, LEARNING_RATE
            loop = TorchLoop(one.model(), *sizes, device, with_compiler)
            _ = loop.first
            peers.append(loop)
        except Exception as error:  # a compiler can fail in many ways, and each is to be shown
            if not with_compiler:
                raise
            first = str(error).strip().splitlines()[0]
            missing.append(Row(group, name, None, note=f"PyTorch could not compile it: {first}"))
    return peers, missing


def _note(name: str, peers: list[Peer]) -> str:
    threads = {peer.name: getattr(peer, "threads", None) for peer in peers}
    if name not in threads:
        return "float32" if fused_here() else "float32; there is no fused pass here"
    if jax.default_backend() != "cpu":
        return "float32, waited for once a block of steps"
    return "float32, one thread" if threads[name] == 1 else f"float32, {threads[name]} threads"


def fused_here() -> bool:
    """Whether ours is the fused pass on this machine, and not a stored batch."""
    return can_be_fused(ONE.risk().white, ONE.model(), True, ONE.batch)


def _ratio(group: str, found: dict[str, Result], peer: str, own: str, bar: Bar | None) -> Row:
    return found[peer].step.ratio_row(group, f"{peer} ÷ {own}", found[own].step, bar=bar)


def _at_equal_noise(ratio: Row, noise_ratio: Row) -> Row:
    """The ratio of times, times that of variances: how much longer the peer takes for a gradient
    with as little noise."""
    assert ratio.value is not None and ratio.spread is not None and noise_ratio.value is not None
    return Row(
        ratio.group,
        f"{ratio.name}, at equal variance of the gradient",
        ratio.value * noise_ratio.value,
        "×",
        (ratio.spread[0] * noise_ratio.value, ratio.spread[1] * noise_ratio.value),
        ratio.repeats,
        ratio.bar,
        f"the ratio of times above, times {noise_ratio.value:.3g}, as at the end of training",
    )


def _plain(steps: int) -> Contestant:
    return Contestant("ours: plain", plain(ONE, steps), steps)


def scan(steps: int, members: int | None = None, one: Size = ONE) -> Contestant:
    """Plain JAX: one seed, or many of them as one program."""
    models = one.model() if members is None else one._replace(models=members).ensemble()
    loop = PlainScan(models, one.batch, one.context, one.noise, LEARNING_RATE)
    many = "" if members is None else f", each of {members} seeds together"
    return Contestant(f"a plain JAX scan{many}", lambda: loop.run(steps), steps * (members or 1))


def _integrated(steps: int) -> Contestant:
    name = "ours: merged weights, labels integrated out"
    return Contestant(name, integrated(ONE, steps), steps)


def _ensemble(setting: Setting, one: Size = ONE) -> Contestant:
    count, steps = setting.members, setting.ensemble_steps
    run = together(one._replace(models=count), steps)
    return Contestant(f"ours: plain, each of {count} seeds together", run, count * steps)


def _bare(setting: Setting) -> Contestant:
    """Losses and gradients in the circuits of an ensemble, and nothing around them."""
    count, steps, law = setting.members, setting.ensemble_steps, ONE.risk().white
    assert law is not None
    spec = law.spec(ONE.model(), True, ONE.batch)
    models = ONE._replace(models=count).ensemble()
    circuits = eqx.filter_vmap(lambda model: law.circuits(model, True))(models)
    circuits = jax.tree.map(lambda x: x.astype(jnp.float32), circuits)
    one = lambda words, kq, ov: loss_and_slopes(spec, law.numbers(words, kq, ov, True))

    @jax.jit
    def passes(words):
        def body(i, carried):
            words, sums = carried
            found = jax.vmap(one)(words, *circuits)
            return words + jnp.uint32(1), jax.tree.map(jnp.add, sums, found)

        shapes = jax.eval_shape(jax.vmap(one), words, *circuits)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        return jax.lax.fori_loop(0, steps, body, (words, zeros))[1]

    words = jax.vmap(words_of)(jr.split(jr.key(1), count))
    run = lambda: jax.block_until_ready(passes(words))
    return Contestant(f"ours: the bare pass, each of {count} seeds together", run, count * steps)


def _device() -> str:
    kind = jax.devices()[0].device_kind
    return "this processor" if jax.default_backend() == "cpu" else kind
