# %% [markdown]
# # What do two softmax heads learn from random weights?
#
# Two softmax heads with random Q, K, V and O are trained by Adam on fresh sequences. With the seed
# used here they end as a pair of opposite heads that together make one step of gradient descent on
# the context with centred inputs, which `iclflow` calls the *debiased* step. This pattern is the
# subject of [arXiv 2503.12734](https://arxiv.org/abs/2503.12734). The program takes about a minute.

# %%
import jax
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np

import iclflow as icl

icl.enable_float64()

# %% [markdown]
# ## Random weights
#
# The task has white inputs in five dimensions, contexts of 40 pairs, and noisy labels.
# `Attention.factored` has free Q, K, V and O, like a layer of a transformer. There is no exact risk
# for such weights, so they are trained on fresh sequences.

# %%
task = icl.isotropic(dim=5, context=40, noise=0.1)
model = icl.Attention.factored(jr.key(0), dim=5, heads=2)
print("risks that exist:", ", ".join(icl.available_kinds(task, model)))
print("number of weights:", sum(weights.size for weights in jax.tree.leaves(model)))

# %% [markdown]
# ## Training
#
# Each step draws 64 new sequences. With `precision="float32"` loss and gradient come from one pass
# that stores no sequence. The loss of a batch of 64 is noisy, so `monitor` measures it on 20 000
# fixed sequences, at the steps at which `save` keeps the weights.

# %%
risk = icl.risk(task, model, "sampled", batch=64, precision="float32")
test = icl.risk(task, model, "dataset", sequences=20_000, key=jr.key(2))
run = icl.adam(
    model,
    risk,
    learning_rate=3e-3,
    steps=15_000,
    key=jr.key(1),
    monitor=test,
    save=icl.SaveLogSpaced(40, first=10),
)
print(f"loss {run.losses[0]:.2f} at the start, {run.losses[-1]:.2f} at the end")

# %% [markdown]
# ## What the heads have become
#
# A head has a key-query circuit, which decides what it attends to, and an output-value circuit,
# which decides what it writes. Both have become simple: key-query is nearly ω times the identity,
# and output-value reads the label with weight μ. One head has ω, μ > 0, the other ω, μ < 0.

# %%
found = icl.analysis.patterns(run.final, task=task)
for head in found.heads:
    print(
        f"{head.role}: ω = {head.omega:.2f}, μ = {head.mu:.2f}, diagonal {head.diagonal_share:.2f}"
    )
print(f"step that both make together, Σμω = {found.step_size:.2f}")

# %% [markdown]
# ## What they compute together
#
# For small ω a softmax over L pairs is 1/L · (1 + ω(x_l − x̄)·x_q). In the difference of two
# opposite heads the constant cancels. What remains is one step of gradient descent with centred
# inputs.

# %%
algorithm = icl.analysis.which_algorithm(run.final, task, count=4000)
for match in algorithm.matches[:3]:
    print(f"{match.name}: relative distance {match.distance:.0%}")

# %% [markdown]
# ## How good is that?
#
# Theory gives the smallest loss of each form, exactly at this dimension and length.

# %%
rows = {
    "best single head": icl.theory.one_head_optimum(task).loss,
    "best pair of heads": icl.theory.pair_optimum(task).loss,
    "best debiased step": icl.theory.debiased_optimum(task).risk,
    "Bayes": icl.theory.bayes_risk_isotropic(task),
}
for name, value in rows.items():
    print(f"{name}: {value:.3f}")
fresh = task.sample(jr.key(3), 20_000)
losses = np.asarray(fresh.squared_error(run.final.predict(fresh)))
error = losses.std() / len(losses) ** 0.5
print(f"these heads, on fresh sequences: {losses.mean():.3f} ± {error:.3f}")

# %% [markdown]
# ## The picture

# %%
figure, axes = plt.subplots(2, sharex=True, figsize=(6, 5), layout="constrained")
run.plot_heads(task, axes=list(axes), log_time=True)
figure.savefig("softmax_heads.png", dpi=150)

# %% [markdown]
# ## What to try next
#
# - One head: `heads=1`. It becomes kernel regression; how far above the pair does it end?
# - Four heads: how many stay positive, how many negative, and is there a dummy?
# - Another seed. One in five random starts ends with two heads of one sign, at a larger loss.
# - `icl.Attention.diagonal(jr.key(0), dim=5, heads=2, scheme="opposite")` has two numbers ω and μ
#   per head, and an exact risk: `icl.theory.pair_flow` predicts its whole training.
# - `iclflow run softmax/paper --flow.steps 1e4` trains as the paper does.
