"""The arguments of commands: one parser for all, and what the paths that users give hold."""

import argparse
import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from ..config import InputError, read_toml

Kind = Literal["file of a run", "file of a sweep", "folder of a run", "folder of a sweep"]
_REMEDIES: dict[Kind, str] = {
    "file of a run": "`iclflow run {}` computes it, or shows it if it is complete",
    "file of a sweep": "`iclflow sweep {}` computes it, or shows it if it is complete",
    "folder of a run": "`iclflow show {}` shows it",
    "folder of a sweep": "`iclflow query {}` shows its table",
}


# Flags that name folders: in an error, `out` is a folder of that name and not the flag.
_PATHS = ("--out", "--root")


class Parser(argparse.ArgumentParser):
    """The arguments of one command; errors in them become an `InputError`."""

    def __init__(self, command: str, words: str, **options: Any):
        # An abbreviation, such as --f, could as well mean the flag of a setting.
        super().__init__(
            prog=f"iclflow {command}", description=words, allow_abbrev=False, **options
        )

    def error(self, message: str):
        # The line that is printed begins with "iclflow:" already.
        command = self.prog.removeprefix("iclflow ")
        raise InputError(f"{command}: {message.rstrip('.')}; `{self.prog} --help` says more.")

    def flag(self, name: str, words: str, metavar: str | None = None, **options: Any) -> None:
        """Adds an argument that takes a value, with its line of help."""
        self.add_argument(name, metavar=metavar, help=words, **options)

    def switch(self, name: str, words: str) -> None:
        """Adds a flag without a value."""
        self.add_argument(name, action="store_true", help=words)

    def add_json(self) -> None:
        """Adds the flag that every command with results has."""
        self.switch("--json", "print the results as JSON")

    def add_tier(self) -> None:
        """Adds the flag for how much to compute."""
        # Written out: `iclflow.papers`, which knows the tiers, takes seconds to load.
        tiers = ("smoke", "default", "paper")
        self.flag("--tier", "how much to do", choices=tiers, default="default")

    def add_resume(self) -> None:
        """Adds the flags of commands that can resume."""
        self.switch("--fresh", "compute it even if it is complete")
        words = "seconds between two checkpoints (default: 10)"
        self.flag("--checkpoint-every", words, "SECONDS", type=float, default=10.0)

    def parse_resumable(
        self, arguments: Sequence[str]
    ) -> tuple[str, argparse.Namespace, list[str]]:
        """Parses FILE, the options after it, and the flags that override settings of the file."""
        file, *rest = arguments
        if file.startswith("-"):
            raise InputError(f"`FILE` comes first, before {file}: give the path of a TOML file.")
        options, flags = self.parse_known_args(rest)
        if {"-h", "--help"} & set(flags):
            self.print_help()  # the settings of the file follow
        if not options.checkpoint_every >= 0:
            every = options.checkpoint_every
            raise InputError(f"`--checkpoint-every` = {every:g}: must not be negative.")
        return file, options, flags

    @contextlib.contextmanager
    def name_flags(self, section: str = "") -> Iterator[None]:
        """Shows arguments of the library as flags of this command, in its errors.

        The library marks names by backticks, such as `hue`; only the command line knows which of
        them were given as flags, such as `--hue`.

        **Arguments:**

        - `section`: whose settings are flags here too: with `"task."`, `task.noise` is `--noise`.
        """

        def show(found: re.Match[str]) -> str:
            flag = "--" + found["name"].replace("_", "-")
            known = flag in self._option_string_actions and flag not in _PATHS
            return f"`{flag}{found['entry']}`" if known else found[0]

        # An entry of a list, such as `eigenvalues[2]`, belongs to the flag of the list.
        name = rf"`(?:{re.escape(section)})?(?P<name>\w+)(?P<entry>(?:\[\d+\])*)`"
        try:
            yield
        except InputError as error:
            raise InputError(re.sub(name, show, str(error))) from None


def check_kind(path: str, *wanted: Kind) -> None:
    """Refuses a path that belongs to another command; unknown files are left to the command."""
    found = _kind_of(Path(path))
    if found is not None and found not in wanted:
        raise InputError(f"`{path}` is the {found}: {_REMEDIES[found].format(path)}.")


def _kind_of(path: Path) -> Kind | None:
    if path.is_dir():
        if (path / "sweep.toml").is_file():
            return "folder of a sweep"
        return "folder of a run" if (path / "config.toml").is_file() else None
    if path.suffix != ".toml":
        return None
    try:
        data = read_toml(path)
    except InputError:
        return None
    if "base" in data:
        return "file of a sweep"
    return "file of a run" if {"task", "model"} <= data.keys() else None
