"""Registries of what papers have, such as claims, found in the folders of the papers."""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Generic, TypeVar

from ..studies import PAPERS

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """Everything of one kind, by name: loaded from the folders of the papers at the first look-up.

    Modules whose names begin with the kind are loaded, and add what they define. `ORDER` of a
    folder says in which order they come; what it does not name comes last, so that a new file needs
    no entry anywhere.
    """

    def __init__(self, kind: str):
        self.kind = kind
        self._items: dict[str, T] = {}
        self._loaded = False

    def add(self, name: str, item: T) -> T:
        """Adds an item under a name that nothing else of its kind has."""
        if name in self._items:
            raise ValueError(f"There are two {self.kind} with the name {name!r}.")
        self._items[name] = item
        return item

    def _load(self) -> dict[str, T]:
        if not self._loaded:
            # First, since the modules may look up what others have added.
            self._loaded = True
            for paper in PAPERS:
                load_paper(self.kind, find_paper(paper))
        return self._items

    def __getitem__(self, name: str) -> T:
        return self._load()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._load())

    def __len__(self) -> int:
        return len(self._load())


def join_lines(words: str) -> str:
    """A sentence as one line, however it is broken in the source."""
    return " ".join(words.split())


def find_paper(name: str) -> ModuleType:
    """The package of a paper."""
    return importlib.import_module(f".{name}", __package__)


def load_paper(kind: str, package: ModuleType) -> None:
    """Loads the modules of a paper that have things of this kind, in their order."""
    for name in module_names(kind, package):
        importlib.import_module(f".{name}", package.__name__)


def module_names(kind: str, package: ModuleType) -> list[str]:
    """The modules of a paper that have things of this kind, in their order."""
    order = package.ORDER.get(kind, ())
    found = (module.name for module in pkgutil.iter_modules(package.__path__))
    topics = [name.removeprefix(f"{kind}_") for name in found if name.startswith(f"{kind}_")]
    place = {topic: number for number, topic in enumerate(order)}
    return [f"{kind}_{t}" for t in sorted(topics, key=lambda topic: place.get(topic, len(place)))]
