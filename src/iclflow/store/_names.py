"""The files of a run and of a sweep."""

import re

from ..files import MANIFEST as MANIFEST

CONFIG = "config.toml"
CHECKPOINT = "checkpoint.safetensors"
TRAJECTORY = "trajectory.safetensors"
FIGURES = ("loss.png", "loss.pdf")
# All files that a run writes besides its checkpoint.
OWN = (CONFIG, TRAJECTORY, *FIGURES, MANIFEST)
# The lock of older versions. It was empty, so nothing tells it from a file of the user.
OLD_LOCK = ".lock"
# First line of the config of a run: a file of this name without it belongs to the user.
HEADER = "# The config of a run, written by iclflow.\n"

SWEEP = "sweep.toml"
RESULTS = "results.parquet"
PARTS = "parts"
TRAJECTORIES = "trajectories"
SWEEP_HEADER = "# A sweep, written by iclflow.\n"
# The number of a batch, the beginning of the hash of its rows, and that of its trajectories.
PART = re.compile(r"([0-9]{4,})-([0-9a-f]{16})(?:-([0-9a-f]{16}))?\.parquet")
BATCH_CHECKPOINT = re.compile(r"([0-9]{4,})-[0-9]+\.checkpoint\.safetensors")
BATCH_TRAJECTORIES = re.compile(r"[0-9]{4,}\.safetensors")
