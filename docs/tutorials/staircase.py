# %% [markdown]
# # Why does the loss of attention fall in steps?
#
# Train linear attention with separate keys and queries on in-context regression, from small
# weights. The loss stays on a plateau, falls abruptly, stays on the next plateau, and falls again.
# This tutorial predicts every level and every drop from the initial weights, compares them with
# the training, and finds out what the model computes on each plateau. The setting is that of [arXiv
# 2501.16265](https://arxiv.org/abs/2501.16265). Reading takes ten minutes, the program half a
# minute.

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
# so that it has to be read from the context. The four coordinates of x have unequal variances.
#
# The model has four heads of rank one. Its risk is the expected squared error over all sequences.
# It is a formula, so that the loss has no sampling noise.

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
# Each plateau is a saddle, at which the model has learned the first few principal components.
# There the other heads grow, and the first one to become large learns the next component.
# `staircase` computes when that happens and which head it is, from the weights at t = 0 alone.

# %%
stairs = icl.theory.staircase(task, model)
print("levels      ", stairs.levels.round(3))
print("drop times  ", stairs.drop_times.round(-1))
print("by the heads", stairs.heads)

# %% [markdown]
# ## Training
#
# Gradient flow is the limit of gradient descent for small steps. The solver adapts its steps, so
# that long plateaus cost little.

# %%
run = icl.gradient_flow(model, risk)
plateaus = icl.analysis.plateaus(run)
measured = icl.analysis.drop_times(run)
print("levels      ", np.array([plateau.level for plateau in plateaus]).round(3))
print("drop times  ", measured.round(-1))
print(f"largest error of a drop time: {np.max(np.abs(stairs.drop_times / measured - 1)):.1%}")

# %% [markdown]
# `icl.analysis` finds the plateaus on the curve and does not use theory. The two differ by a few
# per cent, because the prediction is the limit of small weights. With smaller initial weights the
# error becomes smaller.

# %%
for scale in (1e-2, 1e-3, 1e-4):
    start = icl.Attention.separate(jr.key(0), dim=4, heads=4, scale=scale)
    predicted = icl.theory.staircase(task, start).drop_times
    found = icl.analysis.drop_times(icl.gradient_flow(start, risk))
    print(f"scale {scale:.0e}: largest error {np.max(np.abs(predicted / found - 1)):.0e}")

# %% [markdown]
# ## What does it compute on a plateau?
#
# `which_algorithm` compares its predictions on fresh sequences with known algorithms. On plateau m
# it is principal component regression (PCR): least squares on the m components that it has
# learned.

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
#   queries: how many drops are left? `icl.theory.drop_time` predicts when.
# - `rank=2` with `heads=2`: which plateaus become short?
# - Equal variances: no component comes first by its variance. Are there still steps?
# - Drag the eigenvalues with the mouse: `iclflow explore`, the first preset.
