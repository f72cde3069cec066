# %% [markdown]
# # Which head takes which task?
#
# Three regressions share one sequence: each has coordinates of its own and a label of its own.
# Three softmax heads are trained on all of them. Does each head take one task, and which one? The
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
# In the first phase all heads grow together and the loss hardly moves. In the second, each task is
# taken by the head that is ahead on it. In the third, the heads converge slowly.

# %%
phases = icl.analysis.learning_phases(run)
print(f"warm-up until t = {phases.emergence:.1f}, emergence until t = {phases.convergence:.1f}")

# %% [markdown]
# Theory gives the loss at which training ends if every task has a head of its own. For comparison:
# the loss of the best single head for all tasks, and that of one debiased gradient step for each
# task, which one head more than tasks can approach.

# %%
multitask = icl.theory.multitask
print(f"loss at the end {run.losses[-1]:.3f}")
print(f"one head a task {multitask.gradient_flow_limit(task).loss:.3f}")
print(f"one head for all {multitask.single_head(task).loss:.3f}")
print(f"debiased steps  {multitask.debiased_steps(task).loss:.3f}")

# %% [markdown]
# ## Does every task always get a head of its own?
#
# No. From random weights, a head that is ahead on two tasks can keep both, and another head stays
# without a task. Here twelve random starts are trained as one program:

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
# The losses still fall towards the limit that theory gives for their division. Theory does not say
# which division a random start ends in, but gives an upper bound on how often every task gets a
# head of its own ([Which head wins](../theory/multitask.md#8-which-head-wins)).
#
# ## The picture
#
# Left: the three phases, and the curve that theory integrates from the weights at t = 0, with code
# of its own. Right: the twelve random starts, and the limit for one head per task.

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
# - Two heads for three tasks: which tasks share a head? See `icl.analysis.superposition(model,
#   task)`.
# - Unequal tasks, such as `signal=[1.0, 0.5, 0.25]`: which task is learned first?
# - The end with one head for each task is a saddle of the loss: the noise of sampled batches
#   drives training away from it. `iclflow run multitask/escape` shows it.
