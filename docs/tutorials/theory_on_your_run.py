# %% [markdown]
# # How do I put theory on top of my own run?
#
# You have a training loop of your own, in any library, and a list of losses. Here the loop is
# plain NumPy: gradient descent on a data set, with merged key-query weights. To draw theory on its
# curve you need three things: the same task, the same normalisation, and time in place of steps.

# %%
import numpy as np

import iclflow as icl

icl.enable_float64()
DIM, CONTEXT, HEADS, SEQUENCES, RATE, STEPS = 4, 31, 8, 20_000, 0.05, 3000
VARIANCES = np.array([0.4, 0.3, 0.2, 0.1])

# %% [markdown]
# ## Your own loop
#
# This cell does not use iclflow. The prediction of a head is v_h βᵀU_h x_q with β = (1/N) Σ yₙxₙ.

# %%
random = np.random.default_rng(0)
x = random.normal(size=(SEQUENCES, CONTEXT + 1, DIM)) * np.sqrt(VARIANCES)
w = random.normal(size=(SEQUENCES, DIM))
y = np.einsum("pnd,pd->pn", x, w)
beta = np.einsum("pnd,pn->pd", x[:, :-1], y[:, :-1]) / CONTEXT
query, label = x[:, -1], y[:, -1]

v = 1e-3 * random.normal(size=HEADS)
U = 1e-3 * random.normal(size=(HEADS, DIM, DIM)) / np.sqrt(DIM)
first_v, first_U = v.copy(), U.copy()
losses = []
for _ in range(STEPS):
    A = np.einsum("h,hde->de", v, U)
    error = np.einsum("pd,de,pe->p", beta, A, query, optimize=True) - label
    losses.append(np.mean(error**2))
    slope = 2 * np.einsum("p,pd,pe->de", error, beta, query, optimize=True) / SEQUENCES
    v, U = v - RATE * np.einsum("hde,de->h", U, slope), U - RATE * v[:, None, None] * slope
print(f"loss {losses[0]:.3f} at the start, {losses[-1]:.4f} at the end")

# %% [markdown]
# ## From steps to time
#
# Theory is about the gradient flow τ dW/dt = −½ ∂L/∂W with τ = 1. A step W ← W − η ∂L/∂W is then
# a step of 2η in t. If your loop does not divide by N, or divides by N + 1, give
# `normaliser="none"` or `"tokens"` to the functions of theory
# ([Conventions](../theory/linear.md#0-conventions)).

# %%
times = 2 * RATE * np.arange(STEPS)

# %% [markdown]
# ## What theory says of these weights
#
# `LinearRegression` describes the data; the weights at t = 0 are those of your loop. With merged
# weights the loss has one drop: `drop_time` predicts when, `plateau_losses` the levels before and
# after it, and `reduced_flow` the whole curve.

# %%
task = icl.LinearRegression(VARIANCES, CONTEXT)
levels = icl.theory.plateau_losses(task)[[0, -1]]
predicted = icl.theory.drop_time(task, first_v, first_U)
half = (levels[0] + levels[1]) / 2
measured = np.interp(-half, -np.array(losses), times)
print("levels, predicted:", levels.round(4))
print("levels, measured: ", np.array([losses[0], losses[-1]]).round(4))
print(f"drop time: predicted {float(predicted):.1f}, measured {measured:.1f}")

# %% [markdown]
# The last level differs by the sampling error of the data set, because theory is about fresh
# sequences.
#
# ## Where the loop and the flow differ
#
# There are three causes of a difference. Steps of finite size delay the drop by about one step;
# take smaller steps. A data set has sampling errors; draw more sequences. Theory is the limit of
# small weights; start with smaller ones. The gradient flow of the exact risk from the same
# weights has neither steps nor a data set. So the distance of the loop from it shows the first
# two causes, and the distance of theory from it the third.

# %%
start = icl.Attention(icl.Merged.of(first_v, first_U))
flow = icl.gradient_flow(start, icl.risk(task, start), end=times[-1])
exact = icl.drop_times(flow, levels=levels)[0]
print(f"drop time of the exact gradient flow: {exact:.1f}")
for name, time in {"theory": predicted, "the loop": measured}.items():
    print(f"{name} is off by {abs(time / exact - 1):.0e}")

# %% [markdown]
# ## The picture
#
# Small weights soon grow along one direction, which `growing_start` finds; from there
# `reduced_flow` gives the whole curve. A run draws any prediction with `levels`, `drop_times` or
# `loss`, and your own losses are one more line. While your loop runs, `icl.watch` measures more
# than the loss, such as which estimator your model is nearest to ([Watch a training of your
# own](../watch.md)).

# %%
begin = icl.theory.growing_start(task, first_v, first_U)
curve = icl.theory.reduced_flow(task, flow.times, begin.matrix, begin.imbalance)
ax = flow.plot(theory=curve)
ax.plot(times, losses, color="C1", lw=1, label="my loop")
ax.legend()
ax.figure.savefig("theory_on_your_run.png", dpi=150)

# %% [markdown]
# ## What to try next
#
# - Separate keys and queries in the loop: `icl.theory.cascade(task, v, K, Q)` takes their arrays.
# - A prior that is not white: `icl.LinearRegression(..., prior_covariance=…)`;
#   `icl.theory.learning_order` says which component comes first.
# - Softmax heads: `icl.theory.pair_flow` for a pair of opposite heads;
#   `icl.theory.multitask.spectral_flow` for many.
# - A config instead of a loop: `iclflow run` draws the theory that applies.
