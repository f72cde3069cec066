"""The one list of claims that everything users see reads."""

import copyreg
import difflib
from collections.abc import Callable, Iterable
from typing import Any

from ._base import TIERS, Check, Claim, Paper, Tier
from ._lab import Lab

_CLAIMS: dict[str, Claim] = {}


def claim(
    id: str,
    statement: str,
    *,
    source: str,
    tolerance_reason: str,
    tier: Tier = "default",
    **fields: Any,
) -> Callable[[Callable[[Lab], list[Check]]], Claim]:
    """Makes a claim of a function that computes checks, and registers it."""

    def register(test: Callable[[Lab], list[Check]]) -> Claim:
        if id in _CLAIMS:
            raise ValueError(f"There are two claims with the id {id!r}.")
        paper: Paper = id.split("/")[0]  # pyright: ignore[reportAssignmentType]
        _CLAIMS[id] = Claim(id, paper, statement, source, tier, tolerance_reason, test, **fields)
        return _CLAIMS[id]

    return register


def all_claims() -> tuple[Claim, ...]:
    """Every claim, in the order of the papers."""
    return tuple(_CLAIMS.values())


def select_claims(
    ids: Iterable[str] = (), paper: Paper | None = None, tier: Tier = "default"
) -> tuple[Claim, ...]:
    """The claims that a user asked for.

    **Arguments:**

    - `ids`: exactly these; a prefix such as `linear/` stands for all that begin with it.
    - `paper`: those of one paper.
    - `tier`: those of this tier and of the quicker ones. Ignored for claims asked for by id.
    """
    ids = tuple(ids)
    for wanted in ids:
        if not any(_matches(known, wanted) for known in _CLAIMS):
            close = difflib.get_close_matches(wanted, _CLAIMS, n=1, cutoff=0.8)
            remedy = f"did you mean {close[0]}?" if close else "`iclflow claims` lists them."
            raise ValueError(f"`claim` = {wanted!r} is not a claim: {remedy}")
    chosen = [c for c in _CLAIMS.values() if paper is None or c.paper == paper]
    if ids:
        return tuple(c for c in chosen if any(_matches(c.id, wanted) for wanted in ids))
    return tuple(c for c in chosen if TIERS.index(c.tier) <= TIERS.index(tier))


def _registered(id: str) -> Claim:
    return _CLAIMS[id]


# A claim travels to another process by its name: its test is no function that can be found.
copyreg.pickle(Claim, lambda claim: (_registered, (claim.id,)))


def _matches(id: str, wanted: str) -> bool:
    return id == wanted or (wanted.endswith("/") and id.startswith(wanted))
