# %% [markdown]
# # Up to which initial scale does the loss have plateaus?
#
# One run shows one seed. A sweep computes every combination of some settings and seeds, and writes
# one table that can be queried in SQL. The sweep of this tutorial counts plateaus for initial
# weights of different sizes. With eight seeds it takes less than a minute; the same program can
# compute a thousand.

# %%

from pathlib import Path

import iclflow as icl

icl.enable_float64()
SCALES, SEEDS = 5, 8  # 25 and 1000 make a phase diagram of fifty thousand runs

# %% [markdown]
# ## What to vary, what to measure
#
# `base` is a config, as for `iclflow run`. Axes are crossed with each other and with the seeds.
# The same data as a TOML file work for `iclflow sweep FILE`.

# %%
spec = {
    "name": "where-the-staircase-ends",
    "seeds": SEEDS,
    "base": {
        "task": {"kind": "linear_regression", "eigenvalues": [0.4, 0.3, 0.2, 0.1], "context": 31},
        "model": {"kind": "separate", "heads": 4},
        "flow": {"end": 20000.0},
    },
    "axes": {
        "model.scale": {"from": 0.01, "to": 1.0, "count": SCALES, "log": True},
        "model.heads": [2, 4],
    },
    "measure": {"names": ["plateaus", "components", "linear/cascade"]},
}

# %% [markdown]
# Everything is checked before anything is computed. `out` is the folder of the table: a sweep that
# was stopped resumes, and one that is complete is read at once. A folder holds one sweep: if you
# change the sweep, choose another folder.

# %%
table = icl.sweep(spec, out=f"sweeps/where-it-ends-{SCALES}x{SEEDS}")
names, rows = table.ask("SELECT count(*), sum(result = 'diverged') FROM results")
print(dict(zip(names, rows[0])))

# %% [markdown]
# ## Query the table in SQL
#
# With four components and four heads there are five plateaus, the last one being the end of the
# run. Two heads of rank one learn two components and stop.

# %%
names, rows = table.ask("""
    SELECT model.heads, model.scale, median(plateaus) AS plateaus, min(components), max(components)
    FROM results GROUP BY ALL ORDER BY ALL
""")
print(*names, sep="  ")
for row in rows:
    print("  ".join(f"{value:g}" for value in row))

# %% [markdown]
# ## Claims are measurements too
#
# `linear/cascade` says that the drop times are those of theory. It is about small weights. Where
# it does not apply, the table has null. Where a run shows that its weights were not small enough,
# or its drops are too close, the verdict is `inconclusive`. The column `not_measured` gives the
# reason.

# %%
names, rows = table.ask("""
    SELECT model.scale, claim_linear_cascade AS verdict, count(*) AS runs
    FROM results WHERE verdict IS NOT NULL GROUP BY ALL ORDER BY ALL
""")
print(*names, sep="  ")
for row in rows:
    print(*row, sep="  ")

# %% [markdown]
# ## The picture
#
# A phase diagram: the median number of plateaus, over initial scale and number of heads. `iclflow
# plot` draws the same from the command line, and curves with their quartiles.

# %%
plot = icl.sweeps.Plot(x="model.scale", y="model.heads", hue="plateaus", log=["x"])
Path("thousand_seeds.png").write_bytes(plot.draw(table, "png"))

# %% [markdown]
# ## What to try next
#
# - `SCALES, SEEDS = 25, 100`: do all seeds lose their plateaus at the same scale? `iclflow query
#   sweeps/where-it-ends-25x100 "SELECT …"` queries that table from the command line.
# - Another axis, `"task.eigenvalues": [[0.25, 0.25, 0.25, 0.25], [0.4, 0.3, 0.2, 0.1]]`, with
#   another `out`: are there plateaus with equal variances?
# - `iclflow reproduce sweeps/scale` draws 150 runs with theory on top; [Ready
#   sweeps](../diagrams.md) has four more.
# - A cluster: `icl.sweep(spec, engine="ray")`; see [On a cluster](../cluster.md).
