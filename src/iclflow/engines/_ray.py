"""The engine of a cluster: batches as Ray tasks, on as many machines as Ray has.

Plain tasks, not actors: Ray gives a task whose worker or node died to another worker by itself,
asks its autoscaler for nodes as long as tasks wait, and hands a worker process one task after the
other, so that a process builds and compiles once. Only plain data travel, in both directions: nodes
need no common file system, and one with another version can say so.
"""

import collections
import contextlib
import dataclasses
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

from ..config import InputError
from ..files import LOCK, Held, folder_lock, is_own_lock
from ..sweep import Batch, Finished, Sweep
from ._base import Engine, Progress
from ._ray_node import batch_task, remove_places, tidy_task, versions

# How often a batch is given to another process after its own died: a cluster may lose many nodes,
# but a batch that kills whoever takes it must end some time.
_RETRIES = 10
# Seconds after which we look again for how many nodes there are.
_LOOK = 2.0
# Seconds to reach a cluster.
_REACH = 10.0
# Seconds that batches have to write down where they are, and nodes to tidy up.
_LAST = 5.0
# What the folders of our own instances of Ray begin with.
_OWN = "iclflow-ray-"


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
        if not batches:  # a sweep may have died when all were done, and not yet joined
            remove_places(sweep.hash)
            return
        # Read when Ray is loaded: what it says of dead workers would go among our own output.
        os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
        import ray

        with _connected(self.address):
            gpu = bool(ray.cluster_resources().get("GPU", 0))
            kind = "GPU" if gpu else "CPU"
            # A process keeps what it has built and compiled for its next batch. With GPUs it ends
            # after each: JAX cannot move to another GPU, which Ray may give to the next batch.
            task = ray.remote(
                num_cpus=1, num_gpus=int(gpu), max_calls=int(gpu), max_retries=_RETRIES
            )(batch_task())
            order = ray.put((versions(), sweep.data, sweep.hash, every, gpu))
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
                    _check_raylet()
                    for reference in done:
                        batch = running.pop(reference)
                        rows, trajectories, device = _answer(reference, batch)
                        self.devices[device] += 1
                        yield Finished(batch, rows, trajectories)
            except RayletDied:
                running.clear()  # nobody is there to stop them
                raise
            finally:
                _stop(list(running))
            _tidy(sweep.hash)


class RayletDied(OSError):
    """The process of Ray that every other one on this machine goes through."""


def _check_raylet() -> None:
    """Refuses to wait any longer where the raylet of this machine has died: Ray ends this process
    some seconds later, without a word."""
    import ray

    here = ray.get_runtime_context().get_node_id()
    if _own_raylet_died() or any(n["NodeID"] == here and not n["Alive"] for n in ray.nodes()):
        raise RayletDied(
            "The raylet of Ray on this machine died (killed, or out of memory). What is finished "
            "is kept, and the same command goes on"
        )


def _own_raylet_died() -> bool:
    """Whether that of an instance which we started did: nobody else knows so soon."""
    from ray._private import worker

    node = getattr(worker, "_global_node", None)
    return node is not None and any(name == "raylet" for name, _ in node.dead_processes())


def _stop(running: list) -> None:
    """Stops tasks: first as Ctrl-C does, at which a flow writes down where it is."""
    import ray

    for force in (False, True):
        for reference in running:
            ray.cancel(reference, force=force)
        if running:
            _, running = ray.wait(running, num_returns=len(running), timeout=_LAST)


def _tidy(fingerprint: str) -> None:
    """Removes what a complete sweep has left on its nodes: places of batches that died there, and
    were computed elsewhere. A node that does not answer keeps them."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=0)(tidy_task())
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    there = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
    told = [task.options(scheduling_strategy=node).remote(fingerprint) for node in there]
    ray.wait(told, num_returns=len(told), timeout=_LAST)


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
            place = stack.enter_context(_own_folder())
            options |= {"include_dashboard": False, "_temp_dir": str(place)}
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


@contextlib.contextmanager
def _own_folder() -> Iterator[Path]:
    """A folder for an instance of Ray of our own: its logs, and sockets, whose paths must be short.
    Those of instances whose driver was killed are removed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_OWN}*"):
        # Others may have folders of such a name too: those of ours hold a lock.
        with contextlib.suppress(FileNotFoundError, Held):  # another start was quicker
            if folder.lstat().st_uid == os.getuid() and is_own_lock(folder / LOCK):
                with folder_lock(folder, wait=False):
                    shutil.rmtree(folder, ignore_errors=True)
    # A process of Ray may write a last line while we remove it; the next start finds the rest.
    with tempfile.TemporaryDirectory(prefix=_OWN, ignore_cleanup_errors=True) as name:
        with folder_lock(Path(name)):
            yield Path(name)


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
                f"{versions()['iclflow']} there."
            ) from None
        raise (error.cause or error) from error
    except ray.exceptions.RayError as error:
        raise OSError(
            f"Batch {batch.number} was given up after {_RETRIES + 1} attempts, because the process "
            f"that computed it died each time ({_first_sentence(error)}). What is finished is "
            "kept, and the same command goes on"
        ) from error
