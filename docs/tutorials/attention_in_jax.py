# %% [markdown]
# # Does softmax attention do gradient descent?
#
# Two heads of softmax attention, trained in JAX with Equinox and Optax on linear regression in
# context. One head is kernel regression. Two heads of opposite sign with small weights can also
# make one debiased step, which is a step of gradient descent on centred inputs. Which of the two
# does training find, and when? The program takes less than two minutes on two cores.

# %%
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax

import iclflow as icl

DIM, CONTEXT, NOISE = 4, 20, 0.1
STEPS, BATCH, HEADS = 3000, 256, 2

# %% [markdown]
# ## The task, and the model
#
# The query attends to the pairs of the context: keys and queries are linear in the inputs, values
# are the labels.

# %%
task = icl.LinearRegression([1.0] * DIM, CONTEXT, noise=NOISE)


class Attention(eqx.Module):
    query: jax.Array
    key: jax.Array
    value: jax.Array

    def __init__(self, key, size=0.1):
        keys = jr.split(key, 3)
        self.query = size * jr.normal(keys[0], (HEADS, DIM, DIM))
        self.key = size * jr.normal(keys[1], (HEADS, DIM, DIM))
        self.value = size * jr.normal(keys[2], (HEADS,))

    def __call__(self, x, y, x_query):
        queries = jnp.einsum("bd,hde->bhe", x_query, self.query)
        keys = jnp.einsum("bnd,hde->bhne", x, self.key)
        shares = jax.nn.softmax(jnp.einsum("bhe,bhne->bhn", queries, keys))
        return jnp.einsum("bhn,bn,h->b", shares, y, self.value)


def draw(key):
    x_key, w_key, noise_key = jr.split(key, 3)
    x = jr.normal(x_key, (BATCH, CONTEXT + 1, DIM))
    w = jr.normal(w_key, (BATCH, DIM))
    y = jnp.einsum("bnd,bd->bn", x, w) + NOISE**0.5 * jr.normal(noise_key, (BATCH, CONTEXT + 1))
    return x[:, :-1], y[:, :-1], x[:, -1], y[:, -1]


# %% [markdown]
# ## Training, watched
#
# `icl.watch.jax` compiles the model once; its second argument returns the current parameters.

# %%
optimiser = optax.adam(3e-3)


@eqx.filter_jit
def update(model, state, key):
    x, y, x_query, y_query = draw(key)
    loss = lambda model: jnp.mean((model(x, y, x_query) - y_query) ** 2)
    change, state = optimiser.update(jax.grad(loss)(model), state)
    return optax.apply_updates(model, change), state


model = Attention(jr.key(0))
state = optimiser.init(model)
predict = icl.watch.jax(lambda model, x, y, x_query: model(x, y, x_query), lambda: model)
watch = icl.watch(task, predict, looks=50, steps=STEPS, out="runs/attention")

for step in range(STEPS + 1):
    watch(step)
    model, state = update(model, state, jr.fold_in(jr.key(1), step))

# %% [markdown]
# ## Which estimator it was near, and when

# %%
for look in watch.turns():
    print(look)
print("at the end:", watch.looks[-1])

# %% [markdown]
# With this seed kernel regression is the nearest estimator from the first look to the last: two
# heads can make a debiased step, but this training does not find it.
#
# ## The picture

# %%
axes = watch.plot()
axes[0].figure.savefig("attention.png", dpi=150)

# %% [markdown]
# ## What to try next
#
# - One head instead of two: a single head is kernel regression. What changes?
# - `Attention(jr.key(0), size=1.0)`: does training from large weights end elsewhere?
# - A stack of two layers: compare `watch.looks[-1].excess` with that of one.
