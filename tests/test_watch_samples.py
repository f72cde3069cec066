"""Tasks of somebody else, which are known by their samples alone."""

import dataclasses
from typing import Any

import numpy as np
import pytest

import iclflow as icl
from iclflow.errors import InputError
from test_watch import DIM, NOISE, PRETRAINING, look_at, recall, ridge, zero


class Samples:
    """A task of somebody else, w ~ N(0, I) and noise, that is known
    by its samples alone."""

    def sample(self, seed, count):
        rng = np.random.default_rng(seed)
        x, w = rng.standard_normal((count, 9, DIM)), rng.standard_normal((count, DIM))
        y = np.einsum("bnd,bd->bn", x, w) + np.sqrt(NOISE) * rng.standard_normal((count, 9))
        return x[:, :-1], y[:, :-1], x[:, -1], y[:, -1]


MATRIX = np.array([[0.7, 0.2, 0, 0], [0, 0.5, 0.1, 0], [0.3, 0, 0.2, 0], [0, 0, 0, 0.9]])


def in_two_components(x, y, query):
    """Least squares in the two leading principal components of each context."""
    found = []
    for inputs, labels, each in zip(x.astype(float), y, query):
        _, _, rows = np.linalg.svd(inputs)
        found.append(np.linalg.lstsq(inputs @ rows[:2].T, labels, rcond=None)[0] @ rows[:2] @ each)
    return np.array(found)


def in_float64(predict):
    """Normal equations square the condition number: too much for float32."""
    return lambda *parts: predict(*(part.astype(float) for part in parts))


@pytest.mark.parametrize(
    "name, predict",
    [
        ("ridge regression", in_float64(ridge(0.4))),
        ("least squares", in_float64(ridge(1e-9))),
        (
            "one preconditioned gradient step",
            lambda x, y, q: np.einsum("bnd,bn,de,be->b", x, y, MATRIX, q) / x.shape[1],
        ),
        ("PCR with 2 in-context components", in_two_components),
        ("dMMSE", recall),
    ],
)
def test_models_on_a_task_that_is_known_by_samples_are_named(name, predict):
    task: Any = Samples()
    task.noise = NOISE
    watched = icl.watch(task, predict, every=1, count=200, pretraining=PRETRAINING, strict=True)
    nearest = look_at(watched).nearest[0]
    assert nearest.name == name and nearest.distance < 1e-4
    with pytest.raises(InputError, match="`pretraining` needs the variance of the noise"):
        icl.watch(Samples(), predict, pretraining=PRETRAINING)


class Broken(Samples):
    """A task whose samples cannot be used."""

    def __init__(self, change):
        self.change = change

    def sample(self, seed, count):
        return self.change(*super().sample(seed, count))


def raise_error(*_):
    raise OSError("no such file")


@pytest.mark.parametrize(
    "change, words",
    [
        (raise_error, "it raised OSError: no such file."),
        (lambda x, y, q, yq: (x, y, q), "it raised ValueError: not enough values"),
        (lambda x, y, q, yq: (x, y * np.nan, q, yq), "numbers that are not finite"),
        (lambda x, y, q, yq: (x + np.random.rand(), y, q, yq), "for the same seed"),
        (lambda x, y, q, yq: (x, y, q, np.tile(yq, 2)), r"it gave .*\(4, 1\)\."),
        (lambda x, y, q, yq: (x, y, q, yq[:, None, None]), r"it gave .*\(2, 1, 1\)\."),
        (lambda *parts: [part[:2] for part in parts], r"`task.sample\(.*, 500\)` .* it gave \(2,"),
        (
            lambda x, *rest: (x[:, : 3 + len(x) % 4], rest[0][:, : 3 + len(x) % 4], *rest[1:]),
            "N = 3, and others for another seed or count: must be the same",
        ),
    ],
)
def test_samples_that_cannot_be_used_are_refused_in_one_sentence(change, words, tmp_path):
    with pytest.raises(InputError, match=words):
        icl.watch(Broken(change), zero, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@dataclasses.dataclass
class WithArray:
    """A task that cannot be compared with another of its class."""

    scale: np.ndarray

    def sample(self, seed, count):
        x, y, query, label = Samples().sample(seed, count)
        return x * self.scale[0], y, query * self.scale[0], label


def test_tasks_that_cannot_be_compared_are_told_apart():
    losses = [
        look_at(icl.watch(WithArray(np.full(3, scale)), lambda *parts: parts[2][:, 0])).loss.value
        for scale in (1.0, 2.0)
    ]
    assert losses[0] != losses[1]
