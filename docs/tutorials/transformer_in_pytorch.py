# %% [markdown]
# # When does a transformer begin to do ridge regression?
#
# A small causal transformer reads pairs x₁, y₁, x₂, y₂, … of a linear regression, a new one in
# every sequence, and predicts each y from the tokens before it. At first it predicts zero. Some
# hundred steps later it is close to the best possible predictor. Which estimators is it near in
# between, and when? The program is plain PyTorch and takes less than two minutes on two cores.

# %%
import torch
import torch.nn as nn
import torch.nn.functional as F

import iclflow as icl

DIM, PAIRS, NOISE = 2, 10, 0.1
STEPS, BATCH = 2500, 128
torch.manual_seed(0)

# %% [markdown]
# ## The task
#
# Inputs and weights are standard normal, and labels have noise of variance 0.1. `iclflow` has the
# Bayes predictor of this task and other estimators. The last input of each sequence is the query,
# so that the context has one pair less.

# %%
task = icl.LinearRegression([1.0] * DIM, PAIRS - 1, noise=NOISE)


def draw():
    x = torch.randn(BATCH, PAIRS, DIM)
    w = torch.randn(BATCH, DIM, 1)
    y = (x @ w)[..., 0]
    return x, y + NOISE**0.5 * torch.randn_like(y)


# %% [markdown]
# ## The model
#
# The model is a standard transformer: inputs and labels are alternating tokens, and the prediction
# of a label is the output at its input.


# %%
class Transformer(nn.Module):
    def __init__(self, width=64, heads=4, layers=2):
        super().__init__()
        self.read_in = nn.Linear(DIM + 1, width)
        self.position = nn.Parameter(0.02 * torch.randn(2 * PAIRS, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.read_out = nn.Linear(width, 1)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(2 * PAIRS))

    def forward(self, x, y):
        count, pairs, _ = x.shape
        inputs = F.pad(x, (0, 1))
        labels = F.pad(y[..., None], (DIM, 0))
        tokens = torch.stack([inputs, labels], 2).reshape(count, 2 * pairs, DIM + 1)
        hidden = self.read_in(tokens) + self.position[: 2 * pairs]
        hidden = self.body(hidden, mask=self.mask[: 2 * pairs, : 2 * pairs], is_causal=True)
        return self.read_out(hidden)[:, ::2, 0]


model = Transformer()
optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)

# %% [markdown]
# ## Watching it
#
# `call` says how this model is called: the query is one more input, whose label is not known. The
# model predicts at every position, so that its loss is measured at every context length.

# %%
call = lambda model, x, y, query: model(torch.cat([x, query[:, None]], 1), F.pad(y, (0, 1)))
watch = icl.watch(task, icl.watch.torch(model, call), looks=50, steps=STEPS, out="runs/transformer")

for step in range(STEPS + 1):
    x, y = draw()
    loss = F.mse_loss(model(x, y), y)
    watch(step)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

# %% [markdown]
# ## Which estimator it was near, and when
#
# There is one line for each look at which another estimator became the nearest one.

# %%
for look in watch.turns():
    print(look)
print("at the end:", watch.looks[-1])

# %% [markdown]
# The picture shows the loss with the smallest possible one, the distance from each estimator, and
# the loss over context lengths at the end, beside that of Bayes on the same sequences.

# %%
axes = watch.plot()
axes[0].figure.savefig("transformer.png", dpi=150)
watch.report("transformer.html")

# %% [markdown]
# ## What to try next
#
# - Run `iclflow explore --watch runs/transformer` in another terminal while it trains.
# - `iclflow query runs/transformer "SELECT step, nearest, distance FROM results"` has the numbers.
# - Raise `NOISE`: ridge regression and least squares then differ more. Which one is the model
#   nearer to?
# - Train on 16 fixed weights instead of new ones, and give them to `icl.watch` as `pretraining`:
#   does the model memorise them, or does it learn to regress?
