"""The files of a run and of a sweep."""

CONFIG = "config.toml"
CHECKPOINT = "checkpoint.safetensors"
TRAJECTORY = "trajectory.safetensors"
MANIFEST = "manifest.json"
FIGURES = ("loss.png", "loss.pdf")
# All that a run writes, the manifest first: it goes before what it vouches for.
OWN = (MANIFEST, TRAJECTORY, *FIGURES, CHECKPOINT, CONFIG)
LOCK = ".lock"
# Stands above the config of a run: a file of this name without it is somebody's own.
HEADER = "# The config of a run, written by iclflow.\n"

SWEEP = "sweep.toml"
RESULTS = "results.parquet"
PARTS, TRAJECTORIES = "parts", "trajectories"
# What each of the folders in that of a sweep holds: a number comes first, that of the batch.
BATCH_FILES = {
    PARTS: ("[0-9]*-*.parquet", "[0-9]*-*.checkpoint.safetensors"),
    TRAJECTORIES: ("[0-9]*.safetensors",),
}
SWEEP_HEADER = "# A sweep, written by iclflow.\n"
