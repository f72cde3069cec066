"""What the Ray engine runs on nodes: batches, and the folders for their checkpoints."""

import contextlib
import functools
import hashlib
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

from ..config import InputError, out_of_memory
from ..files import FolderInUse, folder_lock, leftovers
from ..flows import CheckpointError, Status
from ..runtime import NUMERICAL, installed_versions, start
from ._batches import Batch
from ._compute import FinishedBatch, Stopped, compute_batch
from ._file import Sweep, parse_sweep
from ._members import ExperimentCache

# Seconds between two checks whether a batch should stop.
_CHECK_STOP = 0.5
# What this process has built. It belongs to one driver, which has one sweep at a time.
_SWEEPS: dict[str, tuple[Sweep, ExperimentCache]] = {}


def versions() -> dict[str, str]:
    """The versions that decide the bits of a batch."""
    return installed_versions(*NUMERICAL, "numpy")


def batch_task() -> Any:
    """The task that Ray runs for a batch. It is an inner function so that Ray sends its code and
    not its name: a node without this module can then report that."""

    def batch_of_a_sweep(order, batch):
        from iclflow.runtime import use_one_thread

        use_one_thread()  # as in the command, before NumPy is loaded
        from iclflow.sweeps._ray_node import work

        return work(order, batch)

    return batch_of_a_sweep


def work(order: tuple, plain: dict[str, Any]) -> tuple[list[dict[str, Any]], bytes | None, str]:
    """Computes a batch on a node: rows, trajectories and the kind of device. Raises an `InputError`
    if this node cannot give the right bits."""
    wanted, data, fingerprint, every, gpu, stop = order
    if is_stop_requested(stop):  # it waited for a process when its sweep was stopped
        raise Stopped
    node, here = socket.gethostname(), versions()
    for name, version in wanted.items():
        if here.get(name) != version:
            raise InputError(
                f"Node {node} has {name} {here.get(name)}: must be {version}, as where the sweep "
                "was started, because versions decide the bits of a result."
            )
    device = _device(gpu)
    if gpu and device.platform == "cpu":
        raise InputError(
            f"Node {node} has a GPU that its JAX cannot use: install JAX for GPUs there, or start "
            "Ray with --num-gpus 0 on every node."
        )
    if fingerprint not in _SWEEPS:
        # Whether a batch fits into memory is checked here; the driver has checked the rest.
        _SWEEPS[fingerprint] = parse_sweep(data, stored=True), ExperimentCache()
    sweep, cache = _SWEEPS[fingerprint]
    if sweep.hash != fingerprint:
        raise InputError(f"Node {node} has another iclflow: install one version on all nodes.")
    batch = Batch(**plain)
    with hold_place(place(fingerprint, batch.number)) as folder:
        try:
            finished = _compute_or_restart(sweep, batch, folder, every, cache, stop)
        except Exception as error:
            if sentence := out_of_memory(error):  # not all errors of JAX can be pickled
                raise InputError(f"Node {node}: {sentence}") from None
            raise
    return finished.rows, finished.trajectories, device.device_kind


def _compute_or_restart(
    sweep: Sweep, batch: Batch, folder: Path, every: float, cache: ExperimentCache, stop: str
) -> FinishedBatch:
    """Computes the batch, from the start if its checkpoint cannot be used: the user did not choose
    that file."""
    given = sweep, batch, folder, every, cache, _watch_for_stop(stop)
    try:
        return compute_batch(*given)
    except InputError as error:  # a sweep wraps errors of the library in these
        if not isinstance(error.__context__, CheckpointError):
            raise
    for path in folder.glob("*.checkpoint.*"):
        path.unlink()
    return compute_batch(*given)


# Stopping ---------------------------------------------------------------------------------------


def request_stop(key: str) -> None:
    """Asks all batches of a sweep that have this key to stop."""
    from ray.experimental import internal_kv

    internal_kv._internal_kv_put(key, b"1")


def is_stop_requested(key: str) -> bool:
    """Whether a driver called `request_stop`; False in a process without Ray."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return False
    from ray.exceptions import RayError
    from ray.experimental import internal_kv

    try:
        return bool(internal_kv._internal_kv_exists(key))
    except RayError:  # the head node is busy: the next check asks again
        return False


def _watch_for_stop(key: str) -> Callable[[Status], bool]:
    """A callback for a batch, which stops it soon after a request."""
    checked = time.monotonic()

    def watch(_: Status) -> bool:
        nonlocal checked
        # A check asks the head node, and chunks may take milliseconds.
        if time.monotonic() - checked < _CHECK_STOP:
            return True
        checked = time.monotonic()
        return not is_stop_requested(key)

    return watch


@functools.cache
def _device(gpu: bool) -> Any:
    """Starts JAX as the command does, on one core, because Ray reserves one; returns its device."""
    if not gpu:
        os.environ.setdefault("NPROC", "1")
    start(processor_only=not gpu)
    return jax.local_devices()[0]


# Folders for checkpoints ------------------------------------------------------------------------


def place(fingerprint: str, number: int) -> Path:
    """The folder on this node for the checkpoints of a batch. Other versions have other folders,
    because they cannot use these checkpoints."""
    made_by = hashlib.sha256(json.dumps(versions(), sort_keys=True).encode()).hexdigest()
    return _places() / f"{fingerprint[:16]}-{made_by[:8]}-{number:04d}"


def _places() -> Path:
    return Path(tempfile.gettempdir()) / f"iclflow-{os.getuid()}"


@contextlib.contextmanager
def hold_place(folder: Path) -> Iterator[Path]:
    """Locks the folder of a batch. It survives a killed process, so that another one on this node
    can resume, and is removed at the end of the block."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(folder_lock(folder, wait=False))
        except FolderInUse:  # a process that Ray has given up still computes
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        yield folder
        _empty(folder)
    with contextlib.suppress(OSError):  # it contains other files
        folder.rmdir()


def tidy_task() -> Any:
    """The task that Ray runs on every node when a sweep is complete."""

    def places_of_a_sweep(fingerprint):
        from iclflow.sweeps._ray_node import remove_places

        remove_places(fingerprint)

    return places_of_a_sweep


def remove_places(fingerprint: str) -> None:
    """Removes the folders of a complete sweep that processes left when they died."""
    for folder in _places().glob(f"{fingerprint[:16]}-*"):
        remove_unlocked(folder)
    with contextlib.suppress(OSError):  # it contains those of other sweeps, or is missing
        _places().rmdir()


def remove_unlocked(folder: Path) -> None:
    """Removes the folder of a batch, unless a process holds it."""
    with contextlib.suppress(FolderInUse, OSError):
        with folder_lock(folder, wait=False):
            _empty(folder)
        folder.rmdir()


def _empty(folder: Path) -> None:
    """Removes the checkpoints of a batch and their temporary files, and nothing else."""
    for path in [*folder.glob("*.checkpoint.safetensors"), *leftovers(folder)]:
        path.unlink(missing_ok=True)
