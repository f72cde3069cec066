"""The files of a run."""

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
