"""Models in PyTorch whose algorithm is known, because their weights were set by hand: each is
named, and its distances from the others are the exact ones. Skipped where there is no PyTorch."""

import dataclasses
import os

import numpy as np
import pytest

import iclflow as icl

torch = pytest.importorskip("torch")
# `make test` does without PyTorch, also where it is installed.
pytestmark = pytest.mark.slow

# Sequences that the watch draws, and sequences from which the exact distances are estimated: their
# standard error is 3.5 times smaller. With fewer the error of a distance is itself too uncertain
# for a bar of four: at 1000, one in 3030 distances of these tasks was 4.2 standard errors away.
COUNT, EXACT = 4000, 50_000
# Random tasks; 100 take three minutes.
TASKS = int(os.environ.get("ICLFLOW_TASKS", "20"))
# Of the sizes of tasks; each new one is compiled once.
DIMS, PAIRS_PER_INPUT = (3, 4, 5), (2, 4)


@dataclasses.dataclass
class Setting:
    """A task, as NumPy and PyTorch need it."""

    covariance: np.ndarray
    prior: np.ndarray
    noise: float
    context: int
    pretraining: np.ndarray
    step: float

    @staticmethod
    def draw(seed: int) -> "Setting":
        rng = np.random.default_rng(seed)
        dim = int(rng.choice(DIMS))
        turn, _ = np.linalg.qr(rng.standard_normal((dim, dim)))
        eigenvalues = np.sort(rng.uniform(0.2, 2.0, dim))[::-1]
        return Setting(
            covariance=(turn * eigenvalues) @ turn.T,
            prior=np.diag(rng.uniform(0.1, 3.0, dim)),
            noise=float(rng.uniform(0.05, 0.5)),
            context=int(rng.choice(PAIRS_PER_INPUT)) * dim,
            pretraining=rng.standard_normal((int(rng.integers(4, 33)), dim)),
            step=float(rng.uniform(0.3, 1.2)),
        )

    def task(self):
        return icl.LinearRegression(
            covariance=self.covariance,
            context=self.context,
            noise=self.noise,
            prior_covariance=self.prior,
        )

    def sample(self, count: int, seed: int):
        """Sequences drawn by NumPy: x, y, x_query."""
        rng = np.random.default_rng(seed)
        dim, root = len(self.covariance), np.linalg.cholesky(self.covariance)
        x = rng.standard_normal((count, self.context + 1, dim)) @ root.T
        w = rng.standard_normal((count, dim)) * np.sqrt(np.diag(self.prior))
        y = np.einsum("bnd,bd->bn", x, w)
        y += np.sqrt(self.noise) * rng.standard_normal(y.shape)
        return x[:, :-1], y[:, :-1], x[:, -1]

    def gains(self):
        """The strengths a_d of principal components with the smallest loss, and the components.

        With Ω the prior covariance in their basis: the loss of Σ a_d (e_d·β)(e_d·x_q) is quadratic
        in each a_d, with E[y_q β_d x_qd] = λ²Ω and E[β_d²] = λ²Ω + λ(λΩ + tr ΛΩ + σ²)/N.
        """
        variances, vectors = np.linalg.eigh(self.covariance)
        along = np.einsum("dk,de,ek->k", vectors, self.prior, vectors)
        rest = np.trace(self.covariance @ self.prior) + self.noise
        found = along / (variances * along + (variances * along + rest) / self.context)
        return found[::-1], vectors[:, ::-1]


# The models, in PyTorch ---------------------------------------------------------------------------


class LinearAttention(torch.nn.Module):
    """One layer of linear attention; `centred` takes the mean label away first."""

    def __init__(self, matrix, centred=False):
        super().__init__()
        self.key = torch.nn.Parameter(torch.eye(len(matrix)))
        self.query = torch.nn.Parameter(torch.tensor(matrix, dtype=torch.float32))
        self.centred = centred

    def forward(self, x, y, x_query):
        y = y - y.mean(1, keepdim=True) if self.centred else y
        scores = torch.einsum("bnd,bd->bn", x @ self.key.T, x_query @ self.query.T)
        return (scores * y).sum(1) / x.shape[1]


class Recall(torch.nn.Module):
    """Softmax attention to the tasks of the pretraining, by how well they explain the context."""

    def __init__(self, tasks, noise):
        super().__init__()
        self.tasks = torch.nn.Parameter(torch.tensor(tasks, dtype=torch.float32))
        self.noise = noise

    def forward(self, x, y, x_query):
        squares = ((y[..., None] - x @ self.tasks.T) ** 2).sum(1)
        weights = torch.softmax(-squares / (2 * self.noise), -1)
        return (weights * (x_query @ self.tasks.T)).sum(-1)


class Solve(torch.nn.Module):
    """The posterior mean for w ~ N(0, P): ridge regression with the penalty σ²P⁻¹."""

    def __init__(self, penalty):
        super().__init__()
        self.penalty = torch.nn.Parameter(torch.tensor(penalty))

    def forward(self, x, y, x_query):
        gram = x.mT @ x + self.penalty
        return (torch.linalg.solve(gram, (x.mT @ y[..., None])[..., 0]) * x_query).sum(-1)


def models(setting: Setting):
    """Modules by the name of their algorithm."""
    dim, gains = len(setting.covariance), setting.gains()
    two = (gains[1][:, :2] * gains[0][:2]) @ gains[1][:, :2].T
    size = np.trace(setting.prior) / dim
    return {
        "one gradient step": LinearAttention(setting.step * np.eye(dim)),
        "one debiased gradient step": LinearAttention(setting.step * np.eye(dim), centred=True),
        "ridge regression": Solve(setting.noise / size * np.eye(dim)),
        "PCR with 2 components": LinearAttention(two),
        "dMMSE": Recall(setting.pretraining, setting.noise),
        "Bayes": Solve(setting.noise * np.linalg.inv(setting.prior)),
    }


# The exact distances ------------------------------------------------------------------------------


def predictions(setting: Setting):
    """What each algorithm predicts on many sequences of our own, in float64 by NumPy."""
    x, y, query = setting.sample(EXACT, seed=1)
    found = {}
    with torch.no_grad():
        for name, model in models(setting).items():
            model = model.double()
            found[name] = model(*(torch.tensor(part) for part in (x, y, query))).numpy()
    return found | {"zero": np.zeros(EXACT)}


def exact_distance(own, other, name):
    """√(E(ŷ − ŷ_other)² / Eŷ²) with its standard error, with the best size of a free step."""
    if name.endswith("gradient step"):
        other = other * np.mean(own * other) / np.mean(other**2)
    squares, whole = (own - other) ** 2, own**2
    ratio = np.mean(squares) / np.mean(whole)
    error = np.std(squares - ratio * whole) / np.mean(whole) / len(own) ** 0.5
    return np.sqrt(ratio), error / (2 * np.sqrt(ratio)) if ratio > 0 else 0.0


def compare(seed: int):
    """For each model the name that the watch finds and its distance; and for each other algorithm
    how many standard errors its distance is from the exact one."""
    setting = Setting.draw(seed)
    watched = icl.watch(
        setting.task(),
        models(setting)["Bayes"],
        every=1,
        count=COUNT,
        seed=seed,
        lengths=[setting.context],
        pretraining=setting.pretraining,
        strict=True,
        dtype="float64",
    )
    exact, names, deviations = predictions(setting), {}, []
    for number, (name, model) in enumerate(models(setting).items()):
        watched._predict = icl.watch.torch(model.double() if isinstance(model, Solve) else model)
        look = watched(number)
        assert look is not None
        names[name] = look.nearest[0].name, look.nearest[0].distance
        measured = {each.name: each for each in look.distances[0]}
        for other, predicted in exact.items():
            # Zero is called PCR without components here; the model itself is at a distance of 0.
            found = measured["PCR with 0 components" if other == "zero" else other]
            expected, error = exact_distance(exact[name], predicted, other)
            if other not in (name, "zero"):
                deviations.append((found.distance - expected) / np.hypot(found.error, error))
    return names, deviations


def check(seeds):
    deviations = []
    for seed in seeds:
        names, found = compare(seed)
        assert {name: nearest for name, (nearest, _) in names.items()} == {n: n for n in names}, (
            seed
        )
        # The exact distance from its own algorithm is 0; this is what float32 leaves.
        assert max(distance for _, distance in names.values()) < 1e-5, (seed, names)
        deviations += found
    return np.array(deviations)


def test_the_algorithm_of_a_model_is_named_and_its_distances_are_exact():
    assert np.max(np.abs(check([0]))) < 4


@pytest.mark.timeout(3600)
def test_the_algorithm_is_named_in_tasks_of_many_sizes():
    deviations = check(range(1, TASKS + 1))
    assert len(deviations) == TASKS * 6 * 5
    assert np.max(np.abs(deviations)) < 4
    # As standard errors should be: neither too small nor too large.
    assert 0.8 < np.std(deviations) < 1.2
