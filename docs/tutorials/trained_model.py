# %% [markdown]
# # You are sent a trained model: what does it do?
#
# You have files of weights and nothing else. Here they are the checkpoints of a small layer of
# softmax attention, with the names that PyTorch uses; the first cell makes them. From the last one
# you find out what each head attends to, what it writes, and which algorithm all heads together
# implement; from the others, when that began. The program takes about a minute.

# %%
from pathlib import Path

import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np
from safetensors.numpy import save_file

import iclflow as icl

icl.enable_float64()
secret = icl.isotropic(dim=4, context=30, noise=0.1)
layer = icl.Attention.factored(jr.key(5), dim=4, heads=3)
training = icl.adam(
    layer,
    icl.risk(secret, layer, "sampled", batch=64, precision="float32"),
    learning_rate=5e-3,
    steps=6000,
    key=jr.key(6),
    save=icl.SaveAtTimes([0, 30, 100, 300, 1000, 6000]),
)
Path("sent").mkdir(exist_ok=True)
for index, step in enumerate(training.times):
    tensors = icl.checkpoints.to_state_dict(training.at(index), prefix="attn.")
    save_file(tensors, f"sent/step-{step:.0f}.safetensors")
print(sorted(path.name for path in Path("sent").iterdir()))

# %% [markdown]
# ## What is in the file
#
# The file has four matrices. Their shapes do not say how many heads there are: three heads of width
# 5 have the same shapes as one of width 15. The sender has to tell you.

# %%
model = icl.load_model("sent/step-6000.safetensors", heads=3)
for name in ("Q", "K", "V", "O"):
    print(name, getattr(model.circuits, name).shape)

# %% [markdown]
# ## Which task is it judged on?
#
# The file does not contain the task either. Judge the model on the task that you think it was
# trained on, here regression with white inputs. If even the nearest algorithm is far, it was
# probably another task.

# %%
task = icl.isotropic(dim=4, context=30, noise=0.1)
found = icl.analysis.patterns(model, task=task)
for head in found.heads:
    print(f"{head.role}: ω = {head.omega:.2f}, μ = {head.mu:.2f}", end=", ")
    print(f"diagonal {head.diagonal_share:.2f}, last entry {head.last_entry_share:.2f}")
algorithm = icl.analysis.which_algorithm(model, task, count=4000)
best, second = algorithm.matches[:2]
print(
    f"{best.name}, relative distance {best.distance:.0%}; then {second.name}, {second.distance:.0%}"
)

# %% [markdown]
# A head is called positive if it attends to inputs like the query and adds their labels, negative
# if it attends to inputs unlike the query and subtracts their labels. If *diagonal* and *last
# entry* are 1, the head does nothing else; the smaller they are, the more this description leaves
# out.
#
# On the wrong task the nearest algorithm is farther:

# %%
wrong = icl.LinearRegression([4.0, 1.0, 0.2, 0.05], 30, noise=0.1)
far = icl.analysis.which_algorithm(model, wrong, count=4000).best
print(f"on inputs of unequal variances: {far.name}, relative distance {far.distance:.0%}")

# %% [markdown]
# ## When did it begin?
#
# Do the same for every checkpoint. While all heads together do almost nothing, they are called
# *idle*. Later, a head that adds little compared with the others is a *dummy*, and one that a
# single number ω does not describe is *unstructured*. `iclflow inspect sent --heads 3 --context
# 30` prints the same in a terminal.

# %%
steps, sizes = [], []
for path in sorted(Path("sent").iterdir(), key=lambda path: int(path.stem.split("-")[1])):
    one = icl.load_model(path, heads=3)
    heads = icl.analysis.patterns(one, task=task).heads
    near = icl.analysis.which_algorithm(one, task, count=4000).best
    steps.append(int(path.stem.split("-")[1]))
    sizes.append([head.omega * abs(head.mu) for head in heads])
    roles = ", ".join(icl.analysis.roles(one, task))
    print(f"step {steps[-1]}: {roles}; {near.name} ({near.distance:.0%})")

# %% [markdown]
# ## The picture
#
# Left: the key-query circuits of the heads, on the inputs. Right: the strength of each head along
# the checkpoints.

# %%
figure, axes = plt.subplots(1, 4, figsize=(10, 2.8), layout="constrained")
circuits = np.asarray(model.kq())[:, :4, :4]
largest = np.abs(circuits).max()
for number, (ax, circuit) in enumerate(zip(axes, circuits)):
    ax.imshow(circuit, cmap="RdBu_r", vmin=-largest, vmax=largest)
    ax.set_title(f"head {number + 1}: {found.heads[number].role}")
axes[3].plot(steps, sizes, marker="o")
axes[3].axhline(0, color="grey", lw=0.5)
axes[3].set_xscale("symlog", linthresh=30)
axes[3].set(xlabel="step", title="ω|μ| of each head")
figure.savefig("trained_model.png", dpi=150)

# %% [markdown]
# ## What to try next
#
# - `layer = icl.Attention.factored(jr.key(5), dim=4, heads=1)`, and `heads=1` below: which
#   estimator is one head nearest to, and how far from it?
# - A file of your own, with several layers or of a GPT-2: [Inspecting a trained
#   model](../inspect.md) says which names are read.
# - Any other model: [`icl.watch`](../watch.md) needs its predictions alone.
