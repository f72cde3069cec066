"""Studies: named configs, each with words on what it shows.

There is one library of them, `papers/*/studies/*.toml`. Claims test them, figures draw them, the
explorer offers them, and `iclflow run linear/staircase` runs one.
"""

import dataclasses
import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..config import Config, InputError, named, parse_config, read_toml
from ._registry import PAPERS, Registry


@dataclasses.dataclass(frozen=True)
class Study:
    """An experiment with a name.

    **Fields:**

    - `id`: the paper and a name, as in `linear/staircase`.
    - `words`: what happens, what to try, and what is shorter than in the paper.
    - `data`: the sections of its config, as the file has them.
    - `controls`: the settings that matter most, in the order in which the explorer shows them.
    - `order`: its place among the studies of its paper which the explorer offers, if it does.
    """

    id: str
    title: str
    words: str
    data: Mapping[str, Any]
    controls: tuple[str, ...] = ()
    order: int | None = None

    @property
    def paper(self) -> str:
        return self.id.partition("/")[0]

    @property
    def config(self) -> Config:
        # It was checked before it came here: nobody asks whether it fits into memory, now.
        return parse_config(self.data, stored=True)

    def changed(self, **sections: Any) -> Config:
        """The config with some settings changed: `changed(seed=3, model={"scale": 1e-4})`."""
        data = dict(self.data)
        for name, value in sections.items():
            data[name] = {**data.get(name, {}), **value} if isinstance(value, Mapping) else value
        return parse_config(data, stored=True)


class _Studies(Registry[Study]):
    """The files in the folders of the papers."""

    def _load(self) -> dict[str, Study]:
        if not self._loaded:
            self._loaded = True
            for paper in PAPERS:
                for path in sorted((Path(__file__).parent / paper / self.kind).glob("*.toml")):
                    study = read_study(path, paper)
                    self.add(study.id, study)
        return self._items


STUDIES: Registry[Study] = _Studies("studies")


def read_study(path: Path, paper: str) -> Study:
    """The study in a TOML file: the sections of a config, and a table about it."""
    data = read_toml(path)
    about = data.pop("study", None)
    needed, allowed = {"title", "words"}, {"title", "words", "controls", "order"}
    if not isinstance(about, dict) or not needed <= set(about) <= allowed:
        raise InputError(
            f"`{path.name}`: its table [study] must have title and words, and may have controls "
            "and order."
        )
    about["controls"] = tuple(about.get("controls", ()))
    return Study(f"{paper}/{path.stem}", data={"name": f"{paper}-{path.stem}"} | data, **about)


def find_study(id: str) -> Study:
    """The study of this name; an `InputError` that says what is near it if there is none."""
    if id in STUDIES:
        return STUDIES[id]
    near = difflib.get_close_matches(id, STUDIES, n=3, cutoff=0.6)
    remedy = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(STUDIES)}."
    raise InputError(f"`{id}` is neither a file nor a study: {remedy}")


def read_settings(file: str) -> dict[str, Any]:
    """The settings in a file; if there is none of this name, those of the study of this name."""
    if Path(file).suffix == ".toml" or Path(file).exists():
        return named(read_toml(file), file)
    return dict(find_study(file).data)


def task_settings(id: str) -> dict[str, Any]:
    """The settings of the task of a study, apart from its kind: arguments of the class."""
    return {key: value for key, value in find_study(id).data["task"].items() if key != "kind"}


def study(id: str, **sections: Any) -> Config:
    """The config of a study, with some settings changed as by `Study.changed`."""
    return find_study(id).changed(**sections)
