"""A fair queue: pages take turns, the runs of one page come in order."""

import collections
from collections.abc import Iterator

from ._session import Run


class FairQueue:
    """Runs that wait for a worker.

    A page with many runs waits for its own: the first run of another page waits for at most one run
    of each page before it.
    """

    def __init__(self):
        self._lines: collections.OrderedDict[str, collections.deque[Run]] = (
            collections.OrderedDict()
        )

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def add(self, run: Run, first: bool = False) -> None:
        """Puts a run at the end of the line of its page; with `first`, at its beginning."""
        line = self._lines.setdefault(run.session.id, collections.deque())
        line.appendleft(run) if first else line.append(run)

    def remove(self, run: Run) -> bool:
        """Removes a run; False if it does not wait."""
        line = self._lines.get(run.session.id)
        if line is None or run not in line:
            return False
        line.remove(run)
        if not line:
            del self._lines[run.session.id]
        return True

    def next(self) -> Run | None:
        """Removes and returns the run whose turn it is. Its page is last from now on."""
        for session, line in self._lines.items():
            run = line.popleft()
            del self._lines[session]
            if line:
                self._lines[session] = line
            return run
        return None

    def order(self) -> Iterator[Run]:
        """The runs in the order of their turns, as of now."""
        lines = [list(line) for line in self._lines.values()]
        for turn in range(max(map(len, lines), default=0)):
            for line in lines:
                if turn < len(line):
                    yield line[turn]

    def place(self, run: Run) -> int:
        """How many runs come before this one."""
        return next(place for place, each in enumerate(self.order()) if each is run)

    def waits_besides(self, session: str) -> bool:
        """Whether a run of another page waits."""
        return any(name != session for name in self._lines)
