"""The engine of a cluster: batches as Ray tasks, on as many machines as Ray has.

Plain tasks, not actors: Ray gives a task whose worker or node died to another worker by itself,
asks its autoscaler for nodes as long as tasks wait, and hands a worker process one task after the
other, so that a process builds and compiles once. Only plain data travel, in both directions: nodes
need no common file system, and one with another version can say so.
"""

import collections
import contextlib
import dataclasses
import functools
import importlib.metadata
import importlib.util
import logging
import os
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax

from ..compile_cache import enable_compile_cache
from ..config import InputError
from ..precision import enable_float64
from ..store import Held, folder_lock
from ..sweep import Batch, Finished, Sweep, Workshop, compute_batch, parse_sweep
from ..versions import NUMERICAL, installed
from ._base import Engine, Progress

# How often a batch is given to another process after its own died: a cluster may lose many nodes,
# but a batch that kills whoever takes it must end some time.
_RETRIES = 10
# Seconds after which we look again for how many nodes there are.
_LOOK = 2.0
# Seconds to reach a cluster.
_REACH = 10.0


class RayEngine(Engine):
    """A Ray cluster: a batch at a time on each GPU, or on each core where there is no GPU.

    **Arguments:**

    - `address`: of a cluster that this machine is a node of: HOST:PORT, or "auto" for the one that
      runs here. Without it, Ray is started on this machine alone, and stopped at the end.

    **Fields:**

    - `devices`: how many batches each kind of device has computed.
    """

    def __init__(self, address: str | None = None):
        if importlib.util.find_spec("ray") is None:
            raise InputError(
                "`--engine` = ray: Ray is not installed here; install it with "
                "`pip install 'iclflow[ray]'`, or choose local."
            )
        self.address = _checked(address)
        self.devices: collections.Counter[str] = collections.Counter()

    def compute(
        self, sweep: Sweep, batches: Sequence[Batch], folder: Path, every: float, progress: Progress
    ) -> Generator[Finished, None, None]:
        if not batches:
            return
        # Read when Ray is loaded: what it says of dead workers would go among our own output.
        os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
        import ray

        with _connected(self.address):
            kind = "GPU" if ray.cluster_resources().get("GPU", 0) else "CPU"
            # A process keeps what it has built and compiled (Ray would end one with a GPU).
            task = ray.remote(
                num_cpus=1, num_gpus=int(kind == "GPU"), max_calls=0, max_retries=_RETRIES
            )(_task())
            order = ray.put((_versions(), sweep.data, sweep.hash, every, kind == "GPU"))
            waiting, running = collections.deque(batches), {}
            try:
                while waiting or running:
                    # Twice as many as can run: nobody waits for us, and little waits in memory.
                    slots = max(1, int(ray.cluster_resources().get(kind, 0)))
                    while waiting and len(running) < 2 * slots:
                        batch = waiting.popleft()
                        running[task.remote(order, dataclasses.asdict(batch))] = batch
                        progress(batch.number, 0.0)
                    done, _ = ray.wait(list(running), timeout=_LOOK)
                    for reference in done:
                        batch = running.pop(reference)
                        rows, trajectories, device = _answer(reference, batch)
                        self.devices[device] += 1
                        yield Finished(batch, rows, trajectories)
            finally:
                for reference in running:
                    ray.cancel(reference, force=True)


def _checked(address: str | None) -> str | None:
    """The address, if it has the form of one."""
    if address is None or address == "auto":
        return address
    host, _, port = address.rpartition(":")
    if "/" in address or not host or not port.isdigit() or not 0 < int(port) < 2**16:
        raise InputError(
            f"`--address` = {address}: must be HOST:PORT of a Ray cluster that this machine is a "
            "node of, or auto."
        )
    return address


@contextlib.contextmanager
def _connected(address: str | None) -> Iterator[None]:
    """Connects to a cluster, or starts one; it ends with the block, unless it was there before."""
    import ray
    import ray.exceptions

    if ray.is_initialized():
        yield
        return
    # Nothing of Ray's own goes into our output; its logs are in its folder.
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    with contextlib.ExitStack() as stack:
        if address is None:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            # Its logs, and sockets, whose paths must be short.
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="iclflow-ray-"))
            options |= {"include_dashboard": False, "_temp_dir": place}
            if hasattr(os, "sched_getaffinity"):
                options["num_cpus"] = len(os.sched_getaffinity(0))
            if not importlib.metadata.entry_points(group="jax_plugins"):
                options["num_gpus"] = 0  # this JAX has no use for what Ray might find
        elif address != "auto":
            _reach(address)
        stack.callback(ray.shutdown)
        before = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(address or "local", **options)
        except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            what = "Ray cannot be started here" if address is None else f"`--address` = {address}"
            raise InputError(f"{what}: {_first_sentence(error)}.") from error
        finally:
            # Ray makes SIGTERM end the process; the command has something to keep.
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, before)
        yield


def _reach(address: str) -> None:
    """Refuses an address where nothing answers; Ray itself tries for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH).close()
    except OSError as error:
        raise InputError(
            f"`--address` = {address} cannot be reached: {error.strerror or error}. It must be the "
            "address of a Ray cluster, as `ray start --head` prints it."
        ) from None


def _first_sentence(error: Exception) -> str:
    return str(error).strip().split("\n")[0].split(". ")[0].rstrip(".")


def _answer(reference: Any, batch: Batch) -> tuple[list[dict[str, Any]], bytes | None, str]:
    """What a task returned: rows, trajectories and the kind of its device. An error in it is raised
    here as it was raised there."""
    import ray
    import ray.exceptions

    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ImportError):
            raise InputError(
                f"Node {error.ip} cannot load the Ray engine ({error.cause}): install iclflow[ray] "
                f"{_versions()['iclflow']} there."
            ) from None
        raise (error.cause or error) from error
    except ray.exceptions.RayError as error:
        raise OSError(
            f"Batch {batch.number} was given up after {_RETRIES + 1} attempts, because the process "
            f"that computed it died each time ({_first_sentence(error)}). What is finished is "
            "kept, and the same command goes on"
        ) from error


def _versions() -> dict[str, str]:
    """What decides the bits of a batch."""
    return installed(*NUMERICAL, "numpy")


# On the nodes ---------------------------------------------------------------------------------


def _task():
    """What Ray runs. It is inside a function so that Ray sends its code and not its name: a node
    without this module can then say so."""

    def batch_of_a_sweep(order, batch):
        import os

        # One thread for NumPy, as in the command, before it is loaded: Ray says so by the first.
        os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
        from iclflow.engines._ray import work

        return work(order, batch)

    return batch_of_a_sweep


def work(order: tuple, plain: dict[str, Any]) -> tuple[list[dict[str, Any]], bytes | None, str]:
    """Computes a batch in a process of a node: rows, trajectories and the kind of device. An
    `InputError` says why this node must not."""
    versions, data, fingerprint, every, gpu = order
    node, here = socket.gethostname(), _versions()
    for name, wanted in versions.items():
        if here.get(name) != wanted:
            raise InputError(
                f"Node {node} has {name} {here.get(name)}: must be {wanted}, as where the sweep "
                "was started, because versions decide the bits of a result."
            )
    device = _device(gpu)
    if gpu and device.platform == "cpu":
        raise InputError(
            f"Node {node} has a GPU that its JAX cannot use: install JAX for GPUs there, or start "
            "Ray with --num-gpus 0 on every node."
        )
    if fingerprint not in _SWEEPS:
        _SWEEPS[fingerprint] = parse_sweep(data), Workshop()
    sweep, workshop = _SWEEPS[fingerprint]
    if sweep.hash != fingerprint:
        raise InputError(f"Node {node} reads the sweep otherwise: must have the same iclflow.")
    batch = Batch(**plain)
    with _place(f"{fingerprint[:16]}-{batch.number:04d}") as folder:
        finished = compute_batch(sweep, batch, folder, every, workshop, lambda _: True)
    return finished.rows, finished.trajectories, device.device_kind


# What this process has built; it belongs to one driver, which has one sweep at a time.
_SWEEPS: dict[str, tuple[Sweep, Workshop]] = {}


def _device(gpu: bool) -> Any:
    """The device of this process."""
    assigned, device = _begun(gpu)
    if gpu and _gpus() != assigned:
        # JAX cannot move to another GPU, where it would find others: Ray takes a new process.
        os._exit(1)
    return device


@functools.cache
def _begun(gpu: bool) -> tuple[list[str], Any]:
    """Starts JAX as the command does; on one core, since Ray has given us one."""
    if not gpu:
        jax.config.update("jax_platforms", "cpu")
        os.environ.setdefault("NPROC", "1")
    enable_float64()
    enable_compile_cache()
    return _gpus() if gpu else [], jax.local_devices()[0]


def _gpus() -> list[str]:
    import ray

    return list(ray.get_runtime_context().get_accelerator_ids().get("GPU", []))


@contextlib.contextmanager
def _place(name: str) -> Iterator[Path]:
    """A folder of this node for the checkpoints of a batch. It outlives the process, so that
    another on this node can go on, and is removed when the batch is done."""
    folder = Path(tempfile.gettempdir()) / f"iclflow-{os.getuid()}" / name
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(folder_lock(folder, wait=False))
        except Held:  # a process that Ray has given up is still at it
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        yield folder
        shutil.rmtree(folder, ignore_errors=True)
