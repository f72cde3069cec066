# %% [markdown]
# # Which head takes which task?
#
# Three regressions share one sequence: each has coordinates of its own and a label of its own.
# Three softmax heads are trained on all of them. Do they divide the tasks, and who decides? The
# setting is that of [arXiv 2402.19442](https://arxiv.org/abs/2402.19442); the program takes less
# than a minute.

# %%
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np

import iclflow as icl

icl.enable_float64()

# %% [markdown]
# ## Three tasks, three heads
#
# `Attention.balanced` keeps one number ω for each block of coordinates and one μ for each label,
# with the flow that the full matrices would have. With `scheme="distinct"` each head is slightly
# ahead on one task.

# %%
blocks = [range(10), range(10, 20), range(20, 30)]
task = icl.MultiTaskRegression(blocks, context=100, noise=0.0, signal=1.0)
model = icl.Attention.balanced(jr.key(0), task.coordinates, heads=3, scheme="distinct")
run = icl.gradient_flow(model, icl.risk(task, model, "large_context"), end=60.0)
print("owners of the tasks:", icl.analysis.allocation(run, task).owners)

# %% [markdown]
# ## Three phases
#
# First nothing seems to happen: all heads grow together. Then each task is won by the head that
# is ahead on it. At the end the winners settle.

# %%
phases = icl.analysis.learning_phases(run)
print(f"warm-up until t = {phases.emergence:.1f}, emergence until t = {phases.convergence:.1f}")

# %% [markdown]
# Where does it end? If every task has a head of its own, the loss of task i is a formula.

# %%
multitask = icl.theory.multitask
print(f"loss at the end {run.losses[-1]:.3f}")
print(f"one head a task {multitask.gradient_flow_limit(task).loss:.3f}")
print(f"one head for all {multitask.single_head(task).loss:.3f}")
print(f"debiased steps  {multitask.debiased_steps(task).loss:.3f}")

# %% [markdown]
# ## Does every start end so?
#
# No. Start from random weights, and a head that is ahead on two tasks can keep both. Then another
# head stays without a task. Twelve starts, trained as one program:

# %%
starts = icl.init_many(icl.Attention.balanced, jr.split(jr.key(7), 12), task.coordinates, heads=3)
runs = icl.gradient_flow_ensemble(starts, icl.risk(task, starts, "large_context"), end=60.0)
owners = [icl.analysis.allocation(each, task).owners for each in runs]
divided = sum(len(set(each)) == 3 for each in owners)
print(f"{divided} of {len(runs)} starts end with one task a head")
for each, ended in zip(owners[:4], runs):
    limit = multitask.divided_limit(task, each).loss
    print(f"owners {each}: loss {ended.losses[-1]:.3f}, theory for this division {limit:.3f}")

# %% [markdown]
# The losses are still falling towards the limit of their division: theory knows where each
# division ends. Which division a random start ends in it cannot say: it gives an upper bound on how
# often every task gets a head of its own
# ([Which head wins](../theory/multitask.md#8-which-head-wins)).
#
# ## The picture
#
# Theory integrates the same three phases from the weights at t = 0, with code of its own.

# %%
circuits = run.at(0).circuits
flow = multitask.spectral_flow(task, run.times, circuits.omega(), circuits.mu(), width=30)
figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
run.plot(ax=axes[0], theory=flow)
for each, mine in zip(runs, owners):
    axes[1].plot(each.times, each.losses, color="C0" if len(set(mine)) == 3 else "C1", lw=1)
axes[1].axhline(multitask.gradient_flow_limit(task).loss, color="black", ls="--", lw=1)
axes[1].set(xlabel="time (τ)", title="blue: one task a head; orange: a head has two")
figure.savefig("several_tasks.png", dpi=150)
print(f"largest error of the predicted curve: {np.max(np.abs(flow.loss / run.losses - 1)):.0e}")

# %% [markdown]
# ## What to try next
#
# - Two heads for three tasks: who shares? `icl.analysis.superposition(model, task)` counts.
# - Unequal tasks, such as `signal=[1.0, 0.5, 0.25]`: which task is learned first?
# - The end with one head for each task is a saddle of the loss: the noise of sampled batches
#   drives training away from it. `iclflow run multitask/escape` shows it.
