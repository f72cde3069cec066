"""`iclflow examples`: the studies and sweeps of the papers, listed and copied."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ..config import InputError, read_toml
from ..studies import PAPERS, STUDIES, find_near, study_file, sweep_files
from ._arguments import Parser
from ._streams import print_json, say


class _Example(NamedTuple):
    """A file that a command takes: `run` that of a study, `sweep` that of a sweep."""

    name: str
    title: str
    command: str
    file: Path


def main(arguments: Sequence[str]) -> int:
    """Lists the examples, or copies some of them into a folder."""
    parser = Parser(
        "examples",
        "Lists the studies and sweeps of the papers; with names, copies their files, to be changed "
        "and run. `iclflow run NAME` runs a study from any folder, without a copy.",
    )
    words = "such as linear/staircase, or the beginning of names, such as linear/"
    parser.flag("names", words, "NAME", nargs="*")
    parser.flag("--paper", "only those of one paper", choices=PAPERS)
    parser.flag("--out", "where to copy them (default: this folder)", "DIR", default=".")
    parser.add_json()
    options = parser.parse_args(arguments)
    known = _examples(options.paper)
    if not options.names:
        return _list(known.values(), options.json)
    chosen = [example for name in options.names for example in _find(name, known)]
    copied = _copy(dict.fromkeys(chosen), Path(options.out))
    if options.json:
        print_json([{"name": each.name, "file": str(file)} for each, file in copied.items()])
        return 0
    for each, file in copied.items():
        print(f"iclflow {each.command} {file}")
    return 0


def _examples(paper: str | None) -> dict[str, _Example]:
    """The examples by name: studies as the command takes them, sweeps below `sweeps/`."""
    studies = (
        _Example(study.id, study.title, "run", study_file(study.id))
        for study in STUDIES.values()
        if paper in (None, study.paper)
    )
    swept = (
        _Example(f"sweeps/{file.stem}", _describe(read_toml(file)), "sweep", file)
        for name in PAPERS
        if paper in (None, name)
        for file in sweep_files(name)
    )
    return {each.name: each for each in (*studies, *swept)}


def _describe(sweep: Mapping) -> str:
    return f"a sweep over {', '.join(sweep['axes'])}"


def _find(name: str, known: Mapping[str, _Example]) -> list[_Example]:
    found = [known[name]] if name in known else []
    if name.endswith("/"):
        found = [each for each in known.values() if each.name.startswith(name)]
    if not found:
        raise InputError(f"`{name}` is not an example: {find_near(name, known)}")
    return found


def _list(examples, as_json: bool) -> int:
    examples = tuple(examples)
    if as_json:
        keys = ("name", "title", "command")
        print_json([{key: getattr(each, key) for key in keys} for each in examples])
        return 0
    width = max(len(each.name) for each in examples)
    for each in examples:
        say(f"{each.name:<{width}}  {each.title}", width + 2)
    say("\n`iclflow run NAME` runs a study, `iclflow examples NAME` copies its file.")
    return 0


def _copy(examples: Mapping[_Example, None], folder: Path) -> dict[_Example, Path]:
    """Copies files under the names of their examples; nothing if one of them would be replaced."""
    from ..files import write_atomic

    if folder.exists() and not folder.is_dir():
        raise InputError(f"`--out` = {folder}: must be a folder.")
    wanted = {each: folder / f"{each.name.replace('/', '-')}.toml" for each in examples}
    for file in wanted.values():
        if file.exists() or file.is_symlink():
            raise InputError(f"`{file}` exists: remove it, or choose another folder with --out.")
    folder.mkdir(parents=True, exist_ok=True)
    for each, file in wanted.items():
        write_atomic(file, each.file.read_bytes())
    return wanted
