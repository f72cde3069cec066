"""The ledger: what the papers say, statement by statement, and which claims test it."""

import functools
from pathlib import Path
from typing import NamedTuple

from ..config import read_toml


class Statement(NamedTuple):
    """A statement of a paper in our words.

    **Fields:**

    - `row`: its name in the ledger.
    - `where`: its place in the paper or in the authors' code.
    """

    row: str
    where: str
    words: str


def statements_of(claim: str) -> tuple[Statement, ...]:
    """The statements of the papers that a claim tests, by the id of the claim.

    **Example:**

    ```pycon
    >>> [statement.row for statement in icl.papers.statements_of("linear/cascade")]
    []
    ```
    """
    return _by_claim().get(claim, ())


@functools.cache
def _by_claim() -> dict[str, tuple[Statement, ...]]:
    found: dict[str, tuple[Statement, ...]] = {}
    for name, row in read_toml(Path(__file__).parent / "ledger.toml").items():
        for claim in row["claims"]:
            statement = Statement(name, row["where"], row["statement"])
            found[claim] = (*found.get(claim, ()), statement)
    return found
