"""Builds or refreshes the virtual environment, with the standard library and pip alone.

Usage: `python3 tools/venv.py FOLDER EXTRA`. Installs this project, editable, with one of its
extras, in the versions of constraints.txt, and marks success with `FOLDER/.ready-EXTRA`.
"""

import fcntl
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INPUTS = (ROOT / "pyproject.toml", ROOT / "constraints.txt")
# What an extra includes besides itself: installing it makes these ready too.
INCLUDES = {"test": ("test",), "dev": ("dev", "test"), "slow": ("slow", "test")}


def main(folder: Path, extra: str) -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 (this file runs before anything checks it)
        sys.exit(
            f"iclflow needs Python 3.11 or newer; `{sys.executable}` is {sys.version.split()[0]}. "
            "Name another one: make PYTHON=python3.12 …"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Two makes at once: the second waits here, then finds the work done.
    with open(folder.parent / f"{folder.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_ready(folder, extra):
            build(folder, extra)


def is_ready(folder: Path, extra: str) -> bool:
    mark = folder / f".ready-{extra}"
    newest = max(path.stat().st_mtime for path in INPUTS)
    return mark.exists() and mark.stat().st_mtime >= newest


def build(folder: Path, extra: str) -> None:
    python = folder / "bin" / "python"
    # A link whose Python has gone does not exist either.
    if not python.exists():
        create(folder)
    version = output(python, "import platform; print(platform.python_version())")
    print(f"Installing iclflow[{extra}] into {folder} (Python {version}) …", flush=True)
    # The build backend comes from the constraints as well, so nothing is left to build isolation.
    install(python, "hatchling", "editables")
    install(python, "--no-build-isolation", "--editable", f"{ROOT}[{extra}]")
    for name in INCLUDES[extra]:
        (folder / f".ready-{name}").touch()


def create(folder: Path) -> None:
    command = [sys.executable, "-m", "venv", "--clear", str(folder)]
    if importlib.util.find_spec("ensurepip") is None:
        if importlib.util.find_spec("pip") is None:
            sys.exit(
                f"`{sys.executable}` has neither `ensurepip` nor `pip`, so nothing can be "
                "installed. On Debian and Ubuntu: apt install python3-venv"
            )
        # This interpreter's own pip installs into the environment instead.
        command.insert(3, "--without-pip")
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode != 0:
        shutil.rmtree(folder, ignore_errors=True)
        sys.exit(
            f"`{' '.join(command)}` failed. On Debian and Ubuntu: apt install python3-venv\n"
            f"{made.stdout}{made.stderr}"
        )


def install(python: Path, *what: str) -> None:
    pip = [str(python), "-m", "pip"]
    if output(python, "import importlib.util as u; print(u.find_spec('pip') is None)") == "True":
        pip = [sys.executable, "-m", "pip", "--python", str(python)]
    quiet = ["-qq", "--disable-pip-version-check", "--no-input"]
    pins = ["--constraint", str(ROOT / "constraints.txt")]
    code = subprocess.run([*pip, "install", *quiet, *pins, *what]).returncode
    if code != 0:
        sys.exit(f"pip could not install {' '.join(what)} (exit code {code}).")


def output(python: Path, program: str) -> str:
    return subprocess.run(
        [str(python), "-c", program], check=True, capture_output=True, text=True
    ).stdout.strip()


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[2] not in INCLUDES:
        sys.exit(f"usage: {sys.argv[0]} FOLDER {{{','.join(INCLUDES)}}}")
    main(Path(sys.argv[1]), sys.argv[2])
