# %% [markdown]
# # Is an untrained GPT-2 near a known estimator?
#
# The model is a GPT-2 of `transformers` with random weights, built from a config (nothing is
# downloaded), between two linear maps: one reads inputs and labels in, the other reads predictions
# out. How far is it from every known estimator before the first step? What do three hundred steps
# change if only the maps are trained, and what if everything is? The program takes less than two
# minutes on two cores.

# %%
import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import GPT2Config, GPT2Model

import iclflow as icl
from iclflow.drawing.style import canvas, style

DIM, PAIRS, NOISE = 3, 12, 0.1
STEPS, BATCH = 300, 64
torch.manual_seed(0)
task = icl.LinearRegression([1.0] * DIM, PAIRS - 1, noise=NOISE)

# %% [markdown]
# ## The model

# %%
config = GPT2Config(
    n_positions=2 * PAIRS, n_embd=64, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0,
    attn_pdrop=0.0, use_cache=False,
)  # fmt: skip


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.read_in = nn.Linear(DIM + 1, config.n_embd)
        self.body = GPT2Model(config)
        self.read_out = nn.Linear(config.n_embd, 1)

    def forward(self, x, y):
        tokens = torch.stack([F.pad(x, (0, 1)), F.pad(y[..., None], (DIM, 0))], 2)
        tokens = tokens.reshape(len(x), 2 * x.shape[1], DIM + 1)
        hidden = self.body(inputs_embeds=self.read_in(tokens)).last_hidden_state
        return self.read_out(hidden)[:, ::2, 0]


# %% [markdown]
# ## Two trainings, one after the other
#
# The first trains only the maps, the second all weights, from the same random start. Each has its
# own record.


# %%
def train(name, whole):
    torch.manual_seed(0)
    model = Regressor()
    maps = [*model.read_in.parameters(), *model.read_out.parameters()]
    optimiser = torch.optim.AdamW(model.parameters() if whole else maps, lr=1e-3)
    call = lambda model, x, y, query: model(torch.cat([x, query[:, None]], 1), F.pad(y, (0, 1)))
    watched = icl.watch.torch(model, call)
    with icl.watch(task, watched, looks=15, steps=STEPS, count=500, out=f"runs/{name}") as watch:
        for step in range(STEPS + 1):
            watch(step)
            x = torch.randn(BATCH, PAIRS, DIM)
            y = (x @ torch.randn(BATCH, DIM, 1))[..., 0]
            y = y + NOISE**0.5 * torch.randn_like(y)
            optimiser.zero_grad()
            F.mse_loss(model(x, y), y).backward()
            optimiser.step()
    return watch


maps, everything = train("gpt2-maps", whole=False), train("gpt2-everything", whole=True)
print("before:    ", maps.looks[0])
print("maps:      ", maps.looks[-1])
print("everything:", everything.looks[-1])

# %%
with style():
    figure, panels = canvas("double", 5.6, rows=2, across=3)
    maps.plot(panels[:3])
    everything.plot(panels[3:])
    figure.savefig("gpt2.png", dpi=150)

# %% [markdown]
# ## What to try next
#
# - 20 000 steps of everything, on a GPU: does it reach Bayes, and through which estimators?
# - `iclflow explore --watch runs/gpt2-maps --watch runs/gpt2-everything` shows both in the
#   browser.
# - Weights that were trained on text, `GPT2Model.from_pretrained("gpt2")`: is it then enough to
#   train the maps?
