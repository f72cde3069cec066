# %% [markdown]
# # What if large inputs have noisy labels?
#
# This tutorial answers a question that the papers do not ask, with a task, a model, a risk and a
# claim of its own. The noise of a label grows with its input: Var ε_n = σ²|x_n|²/tr Λ. How much
# does the loss of linear attention grow, and can that be predicted? How much does a model gain that
# gives small inputs more weight?

# %%
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np

import iclflow as icl
from iclflow.papers import Checks, Lab, claim, run_claim

icl.enable_float64()
VARIANCES, CONTEXT, NOISE = np.array([1.0, 0.5]), 10, 1.0

# %% [markdown]
# ## A task of your own
#
# A task says how to draw sequences, and what the Bayes predictor does. Here that is ridge
# regression in which each pair has the weight 1/Var ε.


# %%
class GrowingNoise(icl.AbstractTask):
    """y = w·x + ε with w ~ N(0, I), x ~ N(0, Λ), and Var ε = noise · |x|²/tr Λ."""

    eigenvalues: jax.Array
    noise: float
    context: int = eqx.field(static=True)

    @property
    def dim(self):
        return len(self.eigenvalues)

    @property
    def max_context(self):
        return self.context

    def variance(self, x):
        return self.noise * jnp.sum(x**2, -1) / jnp.sum(self.eigenvalues)

    def sample(self, key, count):
        key_x, key_w, key_noise = jr.split(key, 3)
        x = jr.normal(key_x, (count, self.context + 1, self.dim)) * jnp.sqrt(self.eigenvalues)
        w = jr.normal(key_w, (count, self.dim))
        y = jnp.einsum("pnd,pd->pn", x, w)
        y = y + jnp.sqrt(self.variance(x)) * jr.normal(key_noise, y.shape)
        length = jnp.full(count, float(self.context))
        return icl.Sequences(x[:, :-1], y[:, :-1, None], x[:, -1], y[:, -1:], length)

    def bayes_predict(self, sequences):
        weighted = sequences.x / self.variance(sequences.x)[..., None]
        moments = jnp.einsum("...nd,...n->...d", weighted, sequences.y[..., 0])
        w = jnp.linalg.solve(self._precision(sequences), moments[..., None])[..., 0]
        return jnp.sum(w * sequences.x_query, -1, keepdims=True)

    def bayes_variance(self, sequences):
        query = sequences.x_query
        spread = jnp.linalg.solve(self._precision(sequences), query[..., None])[..., 0]
        return (jnp.sum(query * spread, -1) + self.variance(query))[..., None]

    def _precision(self, sequences):
        weighted = sequences.x / self.variance(sequences.x)[..., None]
        return jnp.eye(self.dim) + jnp.einsum("...nd,...ne->...de", weighted, sequences.x)


task = GrowingNoise(jnp.asarray(VARIANCES), NOISE, CONTEXT)
bayes = task.bayes_risk(jr.key(0), 20_000)
print(f"Bayes: {bayes.value:.3f}, standard error {bayes.standard_error:.3f}")

# %% [markdown]
# ## A prediction of your own
#
# Linear attention predicts ŷ = βᵀAx_q with β = (1/N) Σ yₙxₙ, so its loss needs two moments of β.
# As in [section 1](../theory/linear.md#1-the-loss-and-its-minimum) of the derivations E[y_q β
# x_qᵀ] = Λ², and in E[ββᵀ] the noise adds E[ε²xxᵀ]/N. For x ~ N(0, Λ) Isserlis' theorem gives
# E[|x|²xxᵀ] = (tr Λ)Λ + 2Λ². So the noise adds (σ²/N)(Λ + 2Λ²/tr Λ): the second term is new.


# %%
def predicted_loss(variances, context, noise):
    total = np.sum(variances)
    second = (1 + 1 / context) * variances**2 + variances * (total + noise) / context
    second = second + 2 * noise * variances**2 / (context * total)
    return float(total + noise - np.sum(variances**3 / second))


ordinary = icl.LinearRegression(VARIANCES, CONTEXT, noise=NOISE, noisy_query=True)
print(f"linear attention, growing noise: {predicted_loss(VARIANCES, CONTEXT, NOISE):.4f}")
print(f"linear attention, equal noise:   {icl.theory.optimal_loss(ordinary):.4f}")

# %% [markdown]
# ## Training linear attention on it
#
# There is no exact risk for a new task, but there is the risk on a data set. For linear attention
# it stores only sums over the sequences, so that a step costs the same for 400 000 sequences as for
# ten.

# %%
print(
    "risks that exist:", ", ".join(icl.available_kinds(task, icl.Attention.merged(jr.key(1), 2, 4)))
)
linear = icl.Attention.merged(jr.key(1), dim=2, heads=4, scale=1e-2)
data = icl.risk(task, linear, "dataset", sequences=400_000, key=jr.key(2))
linear_run = icl.gradient_flow(linear, data)
print(f"trained: {linear_run.losses[-1]:.4f}")

# %% [markdown]
# ## A model of your own
#
# A model needs `predict`, and weights that are arrays. This one gives a pair the weight
# 1/(|x|² + c), so that it can learn to rely on small inputs, whose labels have little noise. The
# number c is trained too.


# %%
class Weighted(icl.AbstractModel):
    """ŷ = (1/N) Σ yₙ xₙᵀAx_q / (|xₙ|² + exp(log c))."""

    A: jax.Array
    log_c: jax.Array

    def predict(self, sequences):
        weights = 1 / (jnp.sum(sequences.x**2, -1) + jnp.exp(self.log_c))
        moments = jnp.einsum("...n,...nd,...n->...d", weights, sequences.x, sequences.y[..., 0])
        moments = moments / sequences.length[..., None]
        return jnp.einsum("...d,de,...e->...", moments, self.A, sequences.x_query)[..., None]


weighted = Weighted(A=jnp.zeros((2, 2)), log_c=jnp.asarray(3.0))
test = icl.risk(task, weighted, "dataset", sequences=20_000, key=jr.key(3))
sampled = icl.risk(task, weighted, "sampled", batch=256)
adam = {"learning_rate": 0.05, "steps": 3000, "key": jr.key(4), "monitor": test}
weighted_run = icl.adam(weighted, sampled, **adam)
print(f"trained: {weighted_run.losses[-1]:.3f}, c = {np.exp(weighted_run.final.log_c):.2f}")

# %% [markdown]
# It has learned weights of nearly 1/|x|², the inverse of the variance of the noise, and closes more
# than half of the gap between linear attention and Bayes.
#
# ## A risk of your own
#
# A squared error gives large errors the most weight. Does the mean absolute error lead to another
# model? A risk is a function of a model, and of a key if it draws sequences.


# %%
class AbsoluteError(icl.AbstractRisk):
    """E|y_q − ŷ| on fresh sequences."""

    kind = "absolute"
    stochastic = True
    task: icl.AbstractTask
    batch: int = eqx.field(static=True)

    def __call__(self, model, key=None):
        sequences = self.task.sample(key, self.batch)
        return jnp.mean(jnp.abs(sequences.y_query - model.predict(sequences)))


robust = AbsoluteError(task, 256)
robust_run = icl.adam(weighted, robust, **adam)
print(f"trained on absolute errors, squared error: {robust_run.losses[-1]:.3f}")
print(f"c = {np.exp(robust_run.final.log_c):.2f}")

# %% [markdown]
# ## A claim of your own
#
# A claim has a prediction, a measurement, and a tolerance with its reason. With `falsify` the same
# function runs with predictions that are wrong by 3 %: a check that passes even then would prove
# nothing.


# %%
@claim(
    "linear/growing-noise",
    "Noise that grows with the input costs linear attention 2σ²Λ²/(N tr Λ) in E[ββᵀ].",
    source="docs/tutorials/your_own.py",
    tolerance_reason="Four times the spread over data sets of 400 000 sequences, 0.2 %.",
)
def growing_noise(lab: Lab) -> Checks:
    """The loss that linear attention reaches."""
    run = lab.compute(icl.gradient_flow, linear, data)
    predicted = predicted_loss(VARIANCES, CONTEXT, NOISE)
    yield lab.relative("final loss", predicted, run.losses[-1], 0.008)


for falsify in (False, True):
    outcome = run_claim(growing_noise, Lab(falsify=falsify))
    print(f"falsify = {falsify}: {outcome.verdict}")

# %% [markdown]
# ## The picture

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained", sharey=True)
linear_run.plot(ax=axes[0])
weighted_run.plot(ax=axes[1])
for ax, words in zip(axes, ("linear attention, gradient flow", "the weighted model, Adam")):
    ax.axhline(predicted_loss(VARIANCES, CONTEXT, NOISE), color="black", ls="--", lw=1)
    ax.axhline(float(bayes.value), color="grey", ls=":", lw=1)
    ax.set_title(f"{words}\n(dashed: predicted for linear; dotted: Bayes)", fontsize=9)
figure.savefig("your_own.png", dpi=150)

# %% [markdown]
# ## What to try next
#
# - `NOISE = 0.1`: how much better is the weighted model then?
# - Give `Weighted` a property `form` that returns "bilinear" and a method `coefficients` that
#   returns `self.A`, and see why a risk refuses it: its features are not those of linear
#   attention.
# - Add the task to the package, with a `kind` for config files: `CONTRIBUTING.md`, in the
#   repository, says how in one table.
# - More examples of each: [Concepts](../concepts.md#a-task-of-your-own).
