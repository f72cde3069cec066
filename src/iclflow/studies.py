"""The papers, and their studies: named configs, each with words on what it shows.

There is one library of studies, `papers/*/studies/*.toml`. Claims test them, figures draw them, the
explorer offers them, and `icl.run("linear/staircase")` runs one. This module loads neither JAX nor
NumPy, so that the command line can list names at once.
"""

import dataclasses
import difflib
import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from .config import Config, InputError, named, parse_config, read_toml

# How much to compute, from the quickest: more seeds, finer scales, more claims.
Tier = Literal["smoke", "default", "paper"]
TIERS: tuple[Tier, ...] = get_args(Tier)


class Paper(NamedTuple):
    """What iclflow knows about a paper: the only entry that a new paper needs beside its folder.

    **Fields:**

    - `arxiv`: its arXiv number.
    - `subject`: what it is about, as a heading.
    - `key`, `fields`: its BibTeX entry.
    - `others`: further papers on the same subject, which share its folder.
    """

    arxiv: str
    subject: str
    key: str
    fields: dict[str, str]
    others: "tuple[Paper, ...]" = ()


_ICML = {
    "booktitle": "Proceedings of the 42nd International Conference on Machine Learning",
    "year": "2025",
    "volume": "267",
    "publisher": "PMLR",
}
# By the word that all names in a paper begin with, in the order of every list and report. The
# fields are those of CITATION.cff, which other programs read; a test compares the two.
BIBLIOGRAPHY = {
    "linear": Paper(
        "2501.16265",
        "Linear attention",
        "zhang2025training",
        {
            "title": "Training Dynamics of In-Context Learning in Linear Attention",
            "author": "Zhang, Yedi and Singh, Aaditya K. and Latham, Peter E. and Saxe, Andrew M.",
            **_ICML,
            "pages": "76047--76087",
        },
    ),
    "softmax": Paper(
        "2503.12734",
        "Softmax attention",
        "he2025incontext",
        {
            "title": "In-Context Linear Regression Demystified: Training Dynamics and Mechanistic "
            "Interpretability of Multi-Head Softmax Attention",
            "author": "He, Jianliang and Pan, Xintian and Chen, Siyu and Yang, Zhuoran",
            **_ICML,
            "pages": "22686--22742",
        },
    ),
    "multitask": Paper(
        "2402.19442",
        "Multi-task softmax attention",
        "chen2024training",
        {
            "title": "Training Dynamics of Multi-Head Softmax Attention for In-Context Learning: "
            "Emergence, Convergence, and Optimality",
            "author": "Chen, Siyu and Sheen, Heejune and Wang, Tianhao and Yang, Zhuoran",
            "booktitle": "Proceedings of the 37th Conference on Learning Theory",
            "year": "2024",
            "publisher": "PMLR",
        },
    ),
    "diversity": Paper(
        "2405.11751",
        "Few tasks and finite pretraining data",
        "lu2025asymptotic",
        {
            "title": "Asymptotic Theory of In-Context Learning by Linear Attention",
            "author": "Lu, Yue M. and Letey, Mary I. and Zavatone-Veth, Jacob A. and "
            "Maiti, Anindita and Pehlevan, Cengiz",
            "journal": "Proceedings of the National Academy of Sciences",
            "year": "2025",
            "volume": "122",
            "number": "28",
            "pages": "e2502599122",
        },
    ),
    "depth": Paper(
        "2510.01098",
        "Stacks and loops of linear attention",
        "bordelon2025theory",
        {
            "title": "Theory of Scaling Laws for In-Context Regression: Depth, Width, Context "
            "and Time",
            "author": "Bordelon, Blake and Letey, Mary I. and Pehlevan, Cengiz",
            "journal": "arXiv preprint arXiv:2510.01098",
            "year": "2025",
        },
        (
            Paper(
                "2306.00297",
                "Stacks of linear attention",
                "ahn2023transformers",
                {
                    "title": "Transformers Learn to Implement Preconditioned Gradient Descent for "
                    "In-Context Learning",
                    "author": "Ahn, Kwangjun and Cheng, Xiang and Daneshmand, Hadi and Sra, Suvrit",
                    "booktitle": "Advances in Neural Information Processing Systems",
                    "year": "2023",
                    "volume": "36",
                },
            ),
        ),
    ),
}
# The arXiv number of each paper, and what it is about.
PAPERS = {name: paper.arxiv for name, paper in BIBLIOGRAPHY.items()}
SUBJECTS = {name: paper.subject for name, paper in BIBLIOGRAPHY.items()}


@dataclasses.dataclass(frozen=True)
class Study:
    """An experiment with a name.

    **Fields:**

    - `id`: the paper and a name, as in `linear/staircase`.
    - `words`: what happens, what to try, and what is shorter than in the paper.
    - `data`: the sections of its config, as in its file.
    - `controls`: the settings that matter most, in the order in which the explorer shows them.
    - `order`: its place among the studies of its paper in the explorer; None if it is not offered.
    - `claims`: the ids of claims that test what it shows on runs of their own, for a study whose
      one run tests no claim.
    """

    id: str
    title: str
    words: str
    data: Mapping[str, Any]
    controls: tuple[str, ...] = ()
    order: int | None = None
    claims: tuple[str, ...] = ()

    @property
    def paper(self) -> str:
        return self.id.partition("/")[0]

    @property
    def config(self) -> Config:
        return self.changed()

    def changed(self, **sections: Any) -> Config:
        """The config with some settings changed: `changed(seed=3, model={"scale": 1e-4})`."""
        data = dict(self.data)
        for name, value in sections.items():
            data[name] = {**data.get(name, {}), **value} if isinstance(value, Mapping) else value
        # As a stored config: whether it fits into memory is checked when it is run.
        return parse_config(data, stored=True)


_FOLDER = Path(__file__).parent / "papers"


class _Studies(Mapping[str, Study]):
    """The files in the folders of the papers, read when the first study is looked up."""

    @functools.cached_property
    def _items(self) -> dict[str, Study]:
        found = [
            read_study(path, paper)
            for paper in PAPERS
            for path in sorted((_FOLDER / paper / "studies").glob("*.toml"))
        ]
        return {study.id: study for study in found}

    def __getitem__(self, id: str) -> Study:
        return self._items[id]

    def __iter__(self):
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


STUDIES: Mapping[str, Study] = _Studies()


def read_study(path: Path, paper: str) -> Study:
    """The study in a TOML file: the sections of a config, and the table [study] about it."""
    data = read_toml(path)
    about = data.pop("study", None)
    needed = {"title", "words"}
    allowed = needed | {"controls", "order", "claims"}
    if not isinstance(about, dict) or not needed <= set(about) <= allowed:
        raise InputError(
            f"`{path.name}`: its table [study] must have title and words, and may have controls, "
            "order and claims."
        )
    for name in ("controls", "claims"):
        about[name] = tuple(about.get(name, ()))
    return Study(f"{paper}/{path.stem}", data={"name": f"{paper}-{path.stem}"} | data, **about)


def find_study(id: str) -> Study:
    """The study of this name; an `InputError` that names similar ones if there is none."""
    if id in STUDIES:
        return STUDIES[id]
    raise InputError(f"`{id}` is neither a file nor a study: {find_near(id, STUDIES)}")


def find_near(name: str, known: Iterable[str]) -> str:
    """The end of a sentence that refuses a name: similar ones, or all."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    return f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(names)}."


def study_file(id: str) -> Path:
    """The file of a study, which `iclflow run` takes too."""
    paper, _, name = id.partition("/")
    return _FOLDER / paper / "studies" / f"{name}.toml"


def sweep_files(paper: str) -> list[Path]:
    """The files of the sweeps of a paper, as `iclflow sweep` takes them."""
    return sorted((_FOLDER / paper / "sweeps").glob("*.toml"))


def read_settings(file: Path | str) -> dict[str, Any]:
    """The settings in a file, or those of the study of this name if there is no such file."""
    if not (Path(file).suffix == ".toml" or Path(file).exists()):
        return dict(find_study(str(file)).data)
    data = read_toml(file)
    # The file of a study: its table [study] describes the experiment, and is no part of it.
    if isinstance(data.get("study"), dict):
        del data["study"]
    return named(data, file)


def task_settings(id: str) -> dict[str, Any]:
    """The settings of the task of a study, apart from its kind: arguments of the class."""
    return {key: value for key, value in find_study(id).data["task"].items() if key != "kind"}


def study(id: str, **sections: Any) -> Config:
    """The config of a study, with some settings changed as by `Study.changed`."""
    return find_study(id).changed(**sections)
