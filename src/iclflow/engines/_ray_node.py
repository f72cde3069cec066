"""What the Ray engine runs on nodes: a batch in a process, and the places of its checkpoints."""

import contextlib
import functools
import hashlib
import json
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from ..compile_cache import enable_compile_cache
from ..config import InputError, out_of_memory
from ..files import Held, folder_lock, leftovers
from ..flows import CheckpointError
from ..precision import enable_float64
from ..sweep import Batch, Finished, Sweep, Workshop, compute_batch, parse_sweep
from ..versions import NUMERICAL, installed

# What this process has built; it belongs to one driver, which has one sweep at a time.
_SWEEPS: dict[str, tuple[Sweep, Workshop]] = {}


def versions() -> dict[str, str]:
    """What decides the bits of a batch."""
    return installed(*NUMERICAL, "numpy")


def batch_task() -> Any:
    """What Ray runs. It is inside a function so that Ray sends its code and not its name: a node
    without this module can then say so."""

    def batch_of_a_sweep(order, batch):
        import os

        # One thread for NumPy, as in the command, before it is loaded: Ray says so by the first.
        os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
        from iclflow.engines._ray_node import work

        return work(order, batch)

    return batch_of_a_sweep


def work(order: tuple, plain: dict[str, Any]) -> tuple[list[dict[str, Any]], bytes | None, str]:
    """Computes a batch in a process of a node: rows, trajectories and the kind of device. An
    `InputError` says why this node must not."""
    wanted, data, fingerprint, every, gpu = order
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
        # Whether each batch fits is looked at here; the driver has looked at the rest.
        _SWEEPS[fingerprint] = parse_sweep(data, stored=True), Workshop()
    sweep, workshop = _SWEEPS[fingerprint]
    if sweep.hash != fingerprint:
        raise InputError(f"Node {node} reads the sweep otherwise: must have the same iclflow.")
    batch = Batch(**plain)
    with held(place(fingerprint, batch.number)) as folder:
        try:
            finished = _computed(sweep, batch, folder, every, workshop)
        except Exception as error:
            if sentence := out_of_memory(error):  # errors of JAX may not survive the journey
                raise InputError(f"Node {node}: {sentence}") from None
            raise
    return finished.rows, finished.trajectories, device.device_kind


def _computed(
    sweep: Sweep, batch: Batch, folder: Path, every: float, workshop: Workshop
) -> Finished:
    """The batch, from the beginning if what it finds is of no use: nobody chose that file."""
    try:
        return compute_batch(sweep, batch, folder, every, workshop, lambda _: True)
    except InputError as error:  # which is what a sweep makes of errors of the library
        if not isinstance(error.__context__, CheckpointError):
            raise
    for path in folder.glob("*.checkpoint.*"):
        path.unlink()
    return compute_batch(sweep, batch, folder, every, workshop, lambda _: True)


@functools.cache
def _device(gpu: bool) -> Any:
    """Starts JAX as the command does, on one core, since Ray has given us one; its device."""
    if not gpu:
        jax.config.update("jax_platforms", "cpu")
        os.environ.setdefault("NPROC", "1")
    enable_float64()
    enable_compile_cache()
    return jax.local_devices()[0]


# Places of checkpoints ------------------------------------------------------------------------


def place(fingerprint: str, number: int) -> Path:
    """The folder of this node for the checkpoints of a batch. Other versions have others, since
    one cannot use what another wrote."""
    made_by = hashlib.sha256(json.dumps(versions(), sort_keys=True).encode()).hexdigest()
    return _places() / f"{fingerprint[:16]}-{made_by[:8]}-{number:04d}"


def _places() -> Path:
    return Path(tempfile.gettempdir()) / f"iclflow-{os.getuid()}"


@contextlib.contextmanager
def held(folder: Path) -> Iterator[Path]:
    """A place that this process alone uses. It outlives the process, so that another on this node
    can go on, and is removed when the block is done."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(folder_lock(folder, wait=False))
        except Held:  # a process that Ray has given up is still at it
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        yield folder
        _empty(folder)
    with contextlib.suppress(OSError):  # something else is in it
        folder.rmdir()


def tidy_task() -> Any:
    """What Ray runs on every node when a sweep is complete."""

    def places_of_a_sweep(fingerprint):
        from iclflow.engines._ray_node import remove_places

        remove_places(fingerprint)

    return places_of_a_sweep


def remove_places(fingerprint: str) -> None:
    """Removes what processes that died have left of a sweep that is complete."""
    for folder in _places().glob(f"{fingerprint[:16]}-*"):
        remove_unheld(folder)
    with contextlib.suppress(OSError):  # places of other sweeps are in it, or it is not there
        _places().rmdir()


def remove_unheld(folder: Path) -> None:
    """Removes a place, unless a process holds it."""
    with contextlib.suppress(Held, OSError):
        with folder_lock(folder, wait=False):
            _empty(folder)
        folder.rmdir()


def _empty(folder: Path) -> None:
    """Removes the checkpoints of a batch, also half-written ones, and nothing else."""
    for path in [*folder.glob("*.checkpoint.safetensors"), *leftovers(folder)]:
        path.unlink(missing_ok=True)
