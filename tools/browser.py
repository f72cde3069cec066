"""Finds the browser that end-to-end tests drive, or installs it, with the standard library alone.

Usage: `python3 tools/browser.py [--required]`. Prints nothing where there is one. Where there is
none and this user may install packages, apt installs it; otherwise one line says what is left out,
or, with `--required`, the exit code is 1.
"""

import os
import shutil
import subprocess
import sys

# Debian's name, then those of others for the same browser.
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def browser() -> str | None:
    """The path of a browser; `ICLFLOW_BROWSER` names another."""
    wanted = os.environ.get("ICLFLOW_BROWSER")
    found = (shutil.which(name) for name in ([wanted] if wanted else NAMES))
    return next((path for path in found if path), None)


def install() -> str:
    """Installs it where that may be done; why not, else nothing."""
    if shutil.which("apt-get") is None:
        return "there is no apt-get"
    if os.geteuid() != 0:
        return "only root may install packages"
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    print("Installing chromium for the tests in a browser …", flush=True)
    for command in (["apt-get", "update"], ["apt-get", "install", "-y", "chromium"]):
        done = subprocess.run(command, env=quiet, capture_output=True, text=True)
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["no reason given"]
            return f"`{' '.join(command)}` failed: {lines[-1]}"
    return ""


def main(required: bool) -> int:
    if browser():
        return 0
    reason = install()
    if browser():
        return 0
    words = f"No chromium here ({reason or 'not found after it was installed'})"
    if required:
        print(f"{words}: the tests in a browser need one.", file=sys.stderr)
        return 1
    print(f"{words}: the tests in a browser (tests/test_explorer_browser.py) are left out.")
    return 0


if __name__ == "__main__":
    sys.exit(main("--required" in sys.argv[1:]))
