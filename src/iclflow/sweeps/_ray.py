"""The engine for a cluster: batches as Ray tasks.

Plain tasks, not actors: Ray itself retries a task whose worker or node died, asks its autoscaler
for nodes while tasks wait, and gives a worker process one task after the other, so that a process
builds and compiles once. Only plain data are sent, in both directions: nodes need no common file
system, and a node with other versions can say so.
"""

import collections
import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import logging
import os
import secrets
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from ..config import InputError
from ..files import LOCK, FolderInUse, folder_lock, is_own_lock
from ..runtime import usable_cores
from ._batches import Batch
from ._compute import FinishedBatch
from ._engine import Engine, Job
from ._ray_node import batch_task, remove_places, request_stop, tidy_task, versions, withdraw_stop

# Retries of a batch whose process died: a cluster may lose many nodes, but a batch that kills every
# process must fail at some point.
_RETRIES = 10
# Seconds between two checks of how many nodes there are.
_LOOK = 2.0
# Seconds to wait for a connection to a cluster.
_REACH = 10.0
# Seconds for batches to write a checkpoint, and for nodes to clean up.
_LAST = 5.0
# Prefix of the folders of Ray instances that we start.
_OWN = "iclflow-ray-"
# What an address must be, where one cannot be used.
_CLUSTER = "must be the address of a Ray cluster, as `ray start --head` prints it"


class RayEngine(Engine):
    """A Ray cluster: one batch at a time per GPU, or per core where there is no GPU.

    **Arguments:**

    - `address`: of a cluster that this machine is a node of: HOST:PORT, or "auto" for the one that
      runs here. Without it, Ray is started on this machine alone, and stopped at the end.

    **Fields:**

    - `devices`: how many batches each kind of device has computed.
    """

    def __init__(self, address: str | None = None):
        if importlib.util.find_spec("ray") is None:
            allowed = "install it with `pip install 'iclflow[ray]'`, or choose local"
            raise InputError("engine", "ray", allowed, "needs Ray, which is not installed here")
        self.address = _check_address(address)
        self.devices: collections.Counter[str] = collections.Counter()

    def compute(self, job: Job) -> Generator[FinishedBatch, None, None]:
        sweep = job.sweep
        if not job.batches:  # a process died when all were done, before they were joined
            remove_places(sweep.hash)
            return
        # Read when Ray is loaded: keeps its messages on dead workers out of our output.
        os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
        import ray

        with connect_to_ray(self.address):
            gpu = bool(ray.cluster_resources().get("GPU", 0))
            kind = "GPU" if gpu else "CPU"
            # A process reuses what it has built and compiled for its next batch. With GPUs it ends
            # after each: JAX cannot move to another GPU, which Ray may assign to the next batch.
            task = ray.remote(
                num_cpus=1, num_gpus=int(gpu), max_calls=int(gpu), max_retries=_RETRIES
            )(batch_task())
            stop = f"iclflow-stop-{secrets.token_hex(8)}"
            given = versions(), sweep.data, sweep.hash, job.checkpoint_every, gpu, stop
            order = ray.put(given)
            waiting, running = collections.deque(job.batches), {}
            try:
                while waiting or running:
                    # Twice as many as can run: no worker waits for us, and memory stays bounded.
                    slots = max(1, int(ray.cluster_resources().get(kind, 0)))
                    while waiting and len(running) < 2 * slots:
                        batch = waiting.popleft()
                        running[task.remote(order, dataclasses.asdict(batch))] = batch
                        job.progress(batch.number, 0.0)
                    done, _ = ray.wait(list(running), timeout=_LOOK)
                    _check_raylet()
                    for reference in done:
                        batch = running.pop(reference)
                        rows, trajectories, device = _get_result(reference, batch)
                        self.devices[device] += 1
                        yield FinishedBatch(batch, rows, trajectories)
            except RayletDied:
                running.clear()  # nothing can stop them any more
                raise
            finally:
                _stop(list(running), stop)
            _tidy(sweep.hash)

    def facts(self) -> dict[str, Any]:
        # The process that writes the manifest only gathers results: the nodes compute.
        return {"engine": "ray", "devices": dict(self.devices)}


class RayletDied(OSError):
    """The raylet of this machine, through which all Ray processes communicate, has died."""


def _check_raylet() -> None:
    """Raises `RayletDied` if the raylet of this machine has died: Ray would end this process some
    seconds later without a message."""
    import ray

    here = ray.get_runtime_context().get_node_id()
    if _own_raylet_died() or any(n["NodeID"] == here and not n["Alive"] for n in ray.nodes()):
        raise RayletDied(
            "The raylet of Ray on this machine died (killed, or out of memory). What is finished "
            "is kept, and the same command resumes"
        )


def _own_raylet_died() -> bool:
    """Whether the raylet of an instance that we started died: its node knows first."""
    from ray._private import worker

    node = getattr(worker, "_global_node", None)
    return node is not None and any(name == "raylet" for name, _ in node.dead_processes())


def _stop(running: list, key: str) -> None:
    """Asks batches to stop after a checkpoint, and waits a while for them. Those that take longer
    are killed when this process disconnects.

    `ray.cancel` would do the same, but if a task ends at that moment, its C++ code can end this
    process with code 1 (a race with the reply of the worker; ray-project/ray pull request 54527).
    """
    import ray

    if running:
        request_stop(key)
        _, left = ray.wait(running, num_returns=len(running), timeout=_LAST)
        # A cluster outlives this sweep. Batches that still run have yet to read the request.
        if not left:
            withdraw_stop(key)


def _tidy(fingerprint: str) -> None:
    """Removes what a complete sweep left on its nodes: checkpoints of batches that died there and
    were computed elsewhere. A node that does not answer keeps them."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=0)(tidy_task())
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    there = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
    cleanups = [task.options(scheduling_strategy=node).remote(fingerprint) for node in there]
    ray.wait(cleanups, num_returns=len(cleanups), timeout=_LAST)


def _check_address(address: str | None) -> str | None:
    """The address, refused if it is malformed."""
    if address is None or address == "auto":
        return address
    host, _, port = address.rpartition(":")
    if "/" in address or not host or not port.isdigit() or not 0 < int(port) < 2**16:
        allowed = "must be HOST:PORT of a Ray cluster that this machine is a node of, or auto"
        raise InputError("address", address, allowed)
    return address


@contextlib.contextmanager
def connect_to_ray(address: str | None) -> Iterator[None]:
    """Connects to a cluster, or starts one that ends with the block.

    **Example:**

    ```pycon
    >>> import inspect
    >>> list(inspect.signature(icl.sweeps.connect_to_ray).parameters)
    ['address']
    ```
    """
    import ray
    import ray.exceptions

    if ray.is_initialized():
        yield
        return
    # Keeps messages of Ray out of our output; its logs are in its folder.
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    with contextlib.ExitStack() as stack:
        if address is None:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            place = stack.enter_context(_make_own_folder())
            options |= {"include_dashboard": False, "_temp_dir": str(place)}
            options["num_cpus"] = usable_cores()
            if not importlib.metadata.entry_points(group="jax_plugins"):
                options["num_gpus"] = 0  # this JAX cannot use GPUs that Ray might find
        elif address != "auto":
            _check_reachable(address)
        stack.callback(ray.shutdown)
        before = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(address or "local", **options)
        except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            reason = _first_sentence(error)
            if address is None:
                raise InputError(f"Ray cannot be started here: {reason}.") from error
            problem = f"cannot be used ({reason})"
            raise InputError("address", address, _CLUSTER, problem) from error
        finally:
            # Ray makes SIGTERM end the process at once; the command must keep results first.
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, before)
        try:
            yield
        except (KeyboardInterrupt, GeneratorExit):
            # `ray.shutdown` may end this process with code 1 and no message (its C++ code calls
            # `_Exit` if a callback is late, say of a node that died). After an interrupt the
            # command must still report what it kept: a connection to a cluster stays open until
            # the process ends, or until the next sweep in it.
            if address is not None:
                stack.pop_all()
            raise


@contextlib.contextmanager
def _make_own_folder() -> Iterator[Path]:
    """A folder for the logs and sockets of our own Ray instance (paths of sockets must be short).
    Folders of instances whose driver was killed are removed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_OWN}*"):
        # Others may have folders of such a name too: ours contain a lock.
        with contextlib.suppress(FileNotFoundError, FolderInUse):  # another process was faster
            if folder.lstat().st_uid == os.getuid() and is_own_lock(folder / LOCK):
                with folder_lock(folder, wait=False):
                    shutil.rmtree(folder, ignore_errors=True)
    # A process of Ray may still write a log line: the next start removes the rest.
    with tempfile.TemporaryDirectory(prefix=_OWN, ignore_cleanup_errors=True) as name:
        with folder_lock(Path(name)):
            yield Path(name)


def _check_reachable(address: str) -> None:
    """Refuses an address where nothing answers; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH).close()
    except OSError as error:
        problem = f"cannot be reached ({error.strerror or error})"
        raise InputError("address", address, _CLUSTER, problem) from None


def _first_sentence(error: Exception) -> str:
    return str(error).strip().split("\n")[0].split(". ")[0].rstrip(".")


def _get_result(reference: Any, batch: Batch) -> tuple[list[dict[str, Any]], bytes | None, str]:
    """What a task returned: rows, trajectories and the kind of its device. An error on the node is
    raised here again."""
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
            "kept, and the same command resumes"
        ) from error
