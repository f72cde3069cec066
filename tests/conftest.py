import collections
import contextlib
import ctypes
import gc
import os
import random
import subprocess
import sys
from pathlib import Path

# Most of the time of the tests is compilation, much of it of the same programs: all workers, and
# the commands that they start, share one cache. `make clean` removes it.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR",
    str(Path(__file__).resolve().parent.parent / ".pytest_cache" / "compiled"),
)
# Programs that are started by tests and do not ask for the cache themselves keep all they compile.
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# Several processes share the machine, and threads of OpenBLAS that wait for each other keep a core
# busy: beside two other processes a small decomposition would take fifty times as long.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import jax.random as jr
import jaxtyping
import pytest

from iclflow.runtime import compile_quickly, start

# Files of tests that wait for servers, browsers and processes that are killed.
_FIRST = ("test_explorer_browser", "test_watch_browser", "test_ray", "test_watch_lives")

# Few of them run long.
compile_quickly(optimise=False)
start()


# Compiling makes many objects: collecting garbage at the usual pace takes a twentieth of all time.
gc.set_threshold(100_000, 50, 1000)

# A process may have 65 530 pieces of memory; every program that was compiled keeps a few of them,
# and one more than that ends the process without a word. And all processes share one machine. To
# let go of all programs takes half a minute: only when a process holds a fifth of all memory.
_MOST_PIECES = 45_000
_MOST_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 5


def pytest_configure(config):
    """Begins what takes longest to compile before everything else, beside it. Otherwise a worker of
    the explorer would, the first time on a machine; others wait for it, and it gives way to them.
    """
    checked = config.getoption("jaxtyping_packages")
    if checked:  # which takes but one package
        jaxtyping.install_import_hook("benchmarks", checked.partition(",")[2])
    if hasattr(config, "workerinput"):
        # As low as workers of the explorer are: else several of these would leave them no time.
        with contextlib.suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, 0, 5)
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        code = "from iclflow.risks.fused._ffi import available; available()"
        compiling = subprocess.Popen([sys.executable, "-c", code])
        config.add_cleanup(compiling.wait)


@pytest.hookimpl(tryfirst=True)  # before pytest selects by markers
def pytest_collection_modifyitems(items):
    """Marks the further cases of tests with `quick_cases(n)` as slow.

    Those that wait longest for other processes come first: one worker has them for minutes, and
    shares out the rest. At the end they would wait alone.
    """
    seen = collections.Counter()
    for item in items:
        quick = item.get_closest_marker("quick_cases")
        seen[item.parent.nodeid, item.originalname] += 1
        if quick is not None and seen[item.parent.nodeid, item.originalname] > quick.args[0]:
            item.add_marker("slow")
    place = {name: number for number, name in enumerate(_FIRST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(place)))


@pytest.fixture(autouse=True, scope="module")
def little_memory():
    """Lets go of compiled programs after a file of tests, when they have become many; those that
    are needed again come back from the cache on disk."""
    yield
    maps, sizes = Path("/proc/self/maps"), Path("/proc/self/statm")
    if not maps.exists():
        return
    held = int(sizes.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if maps.read_bytes().count(b"\n") > _MOST_PIECES or held > _MOST_BYTES:
        jax.clear_caches()
        gc.collect()
        give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if give_back is not None:  # else what was let go stays with the process
            give_back(0)


@pytest.fixture
def getkey():
    """A source of fresh random keys, the same on every run."""
    source = random.Random(0)

    def _getkey():
        return jr.key(source.randint(0, 2**31 - 1))

    return _getkey


@pytest.fixture
def rendered():
    """Figures as they are."""


@pytest.fixture
def sketched(request, monkeypatch):
    """Figures as the numbers that they show, where nobody looks: to render them takes longest."""

    def numbers(figure, kind) -> bytes:
        return repr(
            [[line.get_xydata().tolist() for line in a.lines] for a in figure.axes]
        ).encode()

    if "rendered" not in request.fixturenames:
        monkeypatch.setattr("iclflow.experiment._figure._render", numbers)


@pytest.fixture
def unchecked():
    """Switches the checks of annotated types off, where our own refusal is what is tested."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
