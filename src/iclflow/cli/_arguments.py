"""The arguments of commands: one parser for all, and what the paths that users give hold."""

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from ..config import InputError, read_toml
from ..studies import TIERS

Kind = Literal[
    "file of a run",
    "file of a sweep",
    "folder of a run",
    "folder of a sweep",
    "folder of a watched training",
]
# What `icl.watch` writes into the folder of a training; `iclflow.watching` takes longer to load.
WATCHED = "watch.json"
_REMEDIES: dict[Kind, str] = {
    "file of a run": "`iclflow run {}` computes it, or shows it if it is complete",
    "file of a sweep": "`iclflow sweep {}` computes it, or shows it if it is complete",
    "folder of a run": "`iclflow show {}` shows it",
    "folder of a sweep": "`iclflow query {}` shows its table",
    "folder of a watched training": "`iclflow query {0}` shows its tables, and `iclflow explore "
    "--watch {0}` draws it",
}


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
        words = "how much to compute: smoke, the quickest part; default, minutes; paper, hours"
        self.flag("--tier", words, choices=TIERS, default="default")

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
            # What FILE can be depends on the command: `run` takes the name of a study too.
            raise InputError(f"`FILE` comes first, before {file}; `{self.prog} --help` says more.")
        options, flags = self.parse_known_args(rest)
        if {"-h", "--help"} & set(flags):
            self.print_help()  # the settings of the file follow
        if not options.checkpoint_every >= 0:
            every = options.checkpoint_every
            raise InputError(f"`--checkpoint-every` = {every:g}: must not be negative.")
        return file, options, flags

    @contextlib.contextmanager
    def name_flags(self, arguments: Sequence[str], section: str = "") -> Iterator[None]:
        """Shows the field that an error of the library blames as the flag that the user gave.

        Only the field of an error is renamed: its text may quote paths and settings of files that
        have the same names as flags.

        **Arguments:**

        - `arguments`: what the user typed. A field that was not given by a flag keeps its name,
          because its value is from a file or a default; one that is missing is named as the flag
          to give.
        - `section`: whose settings are flags here too: with `"task."`, `task.noise` is `--noise`.
        """
        try:
            yield
        except InputError as error:
            flag = self._flag_of(error, arguments, section)
            if flag is None:
                raise
            raise error.renamed(flag) from None

    def _flag_of(self, error: InputError, arguments: Sequence[str], section: str) -> str | None:
        """The flag to which the field of an error belongs; None if there is none."""
        if error.field is None:
            return None
        # An entry of a list, such as `eigenvalues[2]`, belongs to the flag of the list.
        name, bracket, entry = error.field.removeprefix(section).partition("[")
        flag = "--" + name.replace("_", "-")
        if flag not in self._option_string_actions:
            return None
        given = any(word.partition("=")[0] == flag for word in arguments)
        # A setting of the section may be missing in a file: only an argument must be a flag.
        missing = error.value is ... and "." not in error.field
        return flag + bracket + entry if given or missing else None


def check_kind(path: str, *wanted: Kind) -> None:
    """Refuses a path that belongs to another command; unknown files are left to the command."""
    found = kind_of(Path(path))
    if found is not None and found not in wanted:
        raise InputError(f"`{path}` is the {found}: {_REMEDIES[found].format(path)}.")


def kind_of(path: Path) -> Kind | None:
    """What a path holds; None for what no command knows."""
    if path.is_dir():
        if (path / "sweep.toml").is_file():
            return "folder of a sweep"
        if (path / WATCHED).is_file():
            return "folder of a watched training"
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
