"""The diagrams: what each is called, what is swept, and what is to be seen in its figure."""

from collections.abc import Mapping
from typing import Any

from ._base import Diagram


def _range(first: float, last: float, count: int, log: bool = False) -> dict[str, Any]:
    return {"from": first, "to": last, "count": count} | ({"log": True} if log else {})


def _tasks(count: int) -> list[list[int]]:
    """Tasks on ten coordinates each."""
    return [list(range(10 * i, 10 * i + 10)) for i in range(count)]


def _diagram(
    topic: str,
    title: str,
    paper: str,
    caption: str,
    smoke: Mapping[str, Any],
    paper_tier: Mapping[str, Any],
) -> Diagram:
    """A diagram whose file, module and function are named like its topic."""
    tiers = {"smoke": smoke, "paper": paper_tier}
    words = " ".join(caption.split())
    return Diagram(
        f"sweeps/{topic}",
        title,
        words,
        f"arXiv {paper}",
        f"{topic}.toml",
        tiers,
        f"_{topic}",
        topic,
    )


_ALL = (
    _diagram(
        "scale",
        "Initialisation scale × time: from plateaus to the lazy regime",
        "2501.16265",
        """Separate linear attention of four heads of rank one on four components, by exact
        gradient flow. (a) How much of the way from the loss of no learning to the smallest loss is
        done, for the first seed; dashed: the half-drop times that the cascade computes from the
        first weights alone, as far as they come sooner from larger weights. Ticks of the
        colours are the levels that theory gives. (b) The losses at some of the scales, the levels
        (dotted) and the curves of the cascade (dashed). (c) The number of plateaus, the last one
        included, over all seeds: theory has D + 1 for small weights, and Hs³ = ‖A*‖ (dotted) as
        the order at which learning becomes lazy. (d) The largest relative error of a predicted
        drop time, for seeds with as many drops as predicted.""",
        smoke={"seeds": 2, "axes": {"model.scale": _range(0.005, 0.5, 4, log=True)}},
        paper_tier={"seeds": 24, "axes": {"model.scale": _range(0.001, 3.0, 81, log=True)}},
    ),
    _diagram(
        "rank",
        "Rank × heads: the number of plateaus",
        "2501.16265",
        """Separate linear attention of H heads of rank R on four components, by exact gradient flow
        from weights of size 10⁻³ and 10⁻⁴. (a) The median number of plateaus, the last one
        included, over seeds and both scales; theory: min(D, HR) + 1. (b) How many of them are ten
        times as long from the smaller weights, at least half of it: theory has one for each head
        that must start, min(H, D/R rounded up). Where theory's number is another, it is in
        brackets. (c) By how much each of the other plateaus lengthens, all ranks, heads and seeds,
        against the slope in ln(1/s) that theory gives for a head that fills up (dashed: equal).""",
        smoke={"seeds": 1, "axes": {"model.rank": [1, 2], "model.heads": [2]}},
        paper_tier={
            "seeds": 16,
            "axes": {"model.rank": [1, 2, 3, 4], "model.heads": [1, 2, 3, 4, 5, 6]},
        },
    ),
    _diagram(
        "seeds",
        "Seeds × heads: how often the pattern emerges",
        "2503.12734",
        """H softmax heads with one number ω and one number μ each, d = 5, σ² = 0.1, trained on the
        large-context loss from Gaussian weights of size 0.01. (a) The share of seeds that end with
        positive and negative heads whose outputs cancel to 5 %, with 95 % intervals (Wilson).
        Dashed: what is left when the starts whose heads all grow with one sign are lost; theory has
        this for L ≫ Hd, and as a lower bound for shorter contexts, where the zero-sum term turns
        heads round in time. (b) The last losses at the shortest context: theory (dashed) has two
        ends, one debiased gradient step, and one head for all.""",
        smoke={
            "seeds": 32,
            "base": {"flow": {"steps": 8000}},
            "axes": {"model.heads": [2, 3], "task.context": [40]},
        },
        paper_tier={
            "seeds": 2048,
            "axes": {"model.heads": [2, 3, 4, 5, 6, 7, 8], "task.context": [40, 200, 1000]},
        },
    ),
    _diagram(
        "superposition",
        "Heads × tasks: superposition",
        "2402.19442",
        """Decomposable softmax heads on equal tasks of ten coordinates, L = 100, trained on the
        large-context loss from random positive starts. (a) How many tasks a head has that has any,
        in the mean over starts; it cannot be less than I/H. (b) The share of starts after which a
        head works for two tasks or more, with 95 % intervals (Wilson). Dashed: the share in which
        theory has one head ahead on two tasks at the start. The rule neglects how heads hold each
        other back, so that it is an upper bound where there are heads enough; with fewer heads than
        tasks sharing is certain. (c) The last loss of every start against the loss that theory
        gives for the division of the tasks that was found (dashed: equal).""",
        smoke={
            "seeds": 24,
            "axes": {"model.heads": [3], "task.coordinates": [_tasks(3)]},
        },
        paper_tier={"seeds": 1024, "axes": {"model.heads": [1, 2, 3, 4, 5, 6, 8]}},
    ),
    _diagram(
        "ratio",
        "L/d × noise: trained attention and estimators over Bayes",
        "2503.12734",
        """A pair of softmax heads on isotropic regression, d = 5, trained on the large-context loss
        and tested on 20 000 fresh sequences. (a) Its excess loss, beyond the noise σ², over that
        of Bayes; in brackets what theory gives for the best debiased gradient step. (b) Excess
        losses at one noise: the pair, one gradient step of the best size, plain and debiased
        (exact, by the project's estimators), and Bayes (on the same sequences); dashed: theory
        at every length, exact at finite d and L.""",
        smoke={
            "base": {"flow": {"steps": 8000}},
            "axes": {"task.context": [10], "task.noise": [0.1, 1.0]},
        },
        paper_tier={
            "axes": {
                "task.context": [5, 8, 10, 15, 20, 30, 40, 60, 80, 120, 160],
                "task.noise": _range(0.01, 1.0, 13, log=True),
            },
        },
    ),
)

DIAGRAMS: dict[str, Diagram] = {diagram.name: diagram for diagram in _ALL}
