# %% [markdown]
# # Why does the loss of attention fall in steps?
#
# Train linear attention with separate keys and queries on regression in context, from small
# weights. The loss stays on a plateau, falls at once, stays on the next plateau, falls again. In
# ten minutes you will see why, predict every level and every fall from the weights at the
# beginning, and read off what the model computes on each plateau. The setting is that of [arXiv
# 2501.16265](https://arxiv.org/abs/2501.16265); the program takes half a minute.

# %%
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np

import iclflow as icl

icl.enable_float64()  # once, before the first array

# %% [markdown]
# ## The task, the model, the risk
#
# A sequence has 31 pairs (x, y) with y = w·x, and a query. The vector w is new in every sequence,
# so nothing but the context says what it is. The four coordinates of x have unequal variances.
#
# The model has four heads of rank one. Its risk is the expected squared error over all sequences:
# a formula, so that no data set and no noise hide what happens.

# %%
variances = [0.4, 0.3, 0.2, 0.1]
task = icl.LinearRegression(eigenvalues=variances, context=31)
model = icl.Attention.separate(jr.key(0), dim=4, heads=4, scale=1e-2)
risk = icl.risk(task, model)
print(f"{risk.kind} risk at the start: {risk(model):.4f}")

# %% [markdown]
# A model that predicts zero has the risk Σ λ = 1, and small weights predict nearly zero.
#
# ## What theory says before training
#
# Each plateau is a saddle: the model has learned the first few principal components and nothing
# else. The head that is ahead learns the next one. `staircase` races the heads against each
# other, from the weights at t = 0 alone.

# %%
stairs = icl.theory.staircase(task, model)
print("levels      ", stairs.levels.round(3))
print("drop times  ", stairs.drop_times.round(-1))
print("by the heads", stairs.heads)

# %% [markdown]
# ## Training
#
# Gradient flow is gradient descent with steps so small that their size no longer matters. The
# solver chooses its own steps: the long plateaus cost little.

# %%
run = icl.gradient_flow(model, risk)
plateaus = icl.analysis.plateaus(run)
measured = icl.analysis.drop_times(run)
print("levels      ", np.array([plateau.level for plateau in plateaus]).round(3))
print("drop times  ", measured.round(-1))
print(f"largest error of a drop time: {np.max(np.abs(stairs.drop_times / measured - 1)):.1%}")

# %% [markdown]
# `icl.analysis` finds plateaus on the curve, and knows nothing of theory. So the two can
# disagree, and they do, by a few per cent: the prediction is the limit of small weights. Make
# them smaller, and the error goes away.

# %%
for scale in (1e-2, 1e-3, 1e-4):
    start = icl.Attention.separate(jr.key(0), dim=4, heads=4, scale=scale)
    predicted = icl.theory.staircase(task, start).drop_times
    found = icl.analysis.drop_times(icl.gradient_flow(start, risk))
    print(f"scale {scale:.0e}: largest error {np.max(np.abs(predicted / found - 1)):.0e}")

# %% [markdown]
# ## What does it compute on a plateau?
#
# Compare its predictions on fresh sequences with every algorithm in `icl.estimators`. On plateau
# m it is principal component regression: least squares on the m directions that it has learned.

# %%
for plateau in plateaus[1:-1]:
    middle = run.model_at((plateau.start + plateau.end) / 2)
    found = icl.analysis.which_algorithm(middle, task, count=2000)
    print(f"loss {plateau.level:.2f}: {found.best.name}, distance {found.best.distance:.0%}")

# %% [markdown]
# ## The picture
#
# The solid line is the run, the dashed one the prediction. Below: how much of each component is
# learned.

# %%
figure, (above, below) = plt.subplots(2, sharex=True, figsize=(6, 5), layout="constrained")
run.plot(ax=above, theory=stairs, log_time=True)
run.plot_components(task, ax=below, log_time=True)
above.set_xlabel("")
figure.savefig("staircase.png", dpi=150)

# %% [markdown]
# ## What to try next
#
# - `icl.Attention.merged(jr.key(0), dim=4, heads=4, scale=1e-2)` in place of separate keys and
#   queries: how many falls are left? Its one drop time is `icl.theory.drop_time`.
# - `rank=2` with `heads=2`: which plateaus become short?
# - Equal variances: the order is lost, but not the steps. Why?
# - Drag the eigenvalues with the mouse: `iclflow explore`, the first study.
