"""Recorded results: what claims of the paper tier measured elsewhere, one file per claim.

The paper tier takes an accelerator. A record keeps what it measured there: numbers, settings,
versions, device, date, command and hashes of the trajectories. Reports show records beside what was
computed here, and a fresh run can be compared with them.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..config import InputError
from ..files import write_atomic
from ..papers import CLAIMS, Check, Outcome
from ..report import Record, RunInfo

TIER = "paper"
# The keys of an outcome that are kept: the registry has the others.
_KEPT = ("verdict", "reason", "power", "seconds", "config", "hashes", "checks")
Agreement = Literal["same bits", "agrees", "differs"]


def write_records(outcomes: Iterable[Outcome], info: RunInfo, folder: Path) -> list[Path]:
    """Writes one file per claim, and returns them.

    **Example:**

    ```pycon
    >>> import json, pathlib, tempfile
    >>> from iclflow import verification
    >>> report = icl.verify(["softmax/centring-costs-a-sample"], jobs=1, progress=False)
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> path = verification.write_records(report.outcomes, report.info, folder)[0]
    >>> path.name, json.loads(path.read_text())["verdict"]
    ('softmax-centring-costs-a-sample.json', 'holds')
    >>> "linear/rank-count" in verification.read_records()
    True
    ```
    """
    written = []
    for outcome in outcomes:
        id = outcome.claim.id
        kept = {key: value for key, value in outcome.as_json().items() if key in _KEPT}
        record = Record(id, info, f"iclflow verify --tier {TIER} --claim {id}", kept)
        written.append(folder / f"{id.replace('/', '-')}.json")
        text = json.dumps(record.as_json(), indent=2, default=str, ensure_ascii=False)
        write_atomic(written[-1], text + "\n")
    return written


def read_records() -> dict[str, Record]:
    """The records that the package brings, by claim."""
    path = _home()
    if not path.is_dir():
        return {}
    found = (_read(each) for each in path.iterdir() if each.name.endswith(".json"))
    records = {record.claim: record for record in found}
    return {id: records[id] for id in CLAIMS if id in records}


def _home() -> Any:
    return files("iclflow.papers").joinpath("results")


def _read(path: Any) -> Record:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        about = {key: data[key] for key in ("date", "tier", "falsify", "machine", "versions")}
        # Older records do not name it.
        info = RunInfo(**about, seconds=data["seconds"], commit=data.get("commit", ""))
        return Record(data["claim"], info, data["command"], {key: data[key] for key in _KEPT})
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"`{path}` is not a recorded result: {error!r}.") from None


def compare(outcome: Outcome, record: Record) -> tuple[Agreement, str]:
    """Whether a fresh outcome agrees with the recorded one, and where it does not.

    It agrees if the verdict is the same, and no number is farther from the recorded one than the
    check allows it to be from its prediction. Counts, orders and bounds have only to pass or fail
    as before: other devices draw other random numbers.

    **Example:**

    ```pycon
    >>> from iclflow import verification
    >>> from iclflow.report import Record
    >>> report = icl.verify(["softmax/centring-costs-a-sample"], jobs=1, progress=False)
    >>> outcome = report.outcomes[0]
    >>> record = Record(outcome.claim.id, report.info, "iclflow verify", outcome.as_json())
    >>> verification.compare(outcome, record)
    ('agrees', '')
    ```
    """
    recorded = record.outcome
    if outcome.verdict != recorded["verdict"]:
        return "differs", f"{outcome.verdict}, recorded as {recorded['verdict']}"
    before = {check["name"]: check for check in recorded["checks"]}
    apart = [check.name for check in outcome.checks if not _agrees(check, before.get(check.name))]
    missing = sorted(before.keys() - {check.name for check in outcome.checks})
    if apart or missing:
        return "differs", "; ".join([*apart, *missing])
    same = bool(outcome.hashes) and outcome.hashes == recorded["hashes"]
    return ("same bits" if same else "agrees"), ""


def _agrees(check: Check, recorded: Mapping[str, Any] | None) -> bool:
    if recorded is None:
        return False
    if check.comparison not in ("absolute", "relative", "standard errors"):
        return check.passed == recorded["passed"]
    measured = np.asarray(recorded["measured"], float)
    error = check.standard_error
    if error is not None:  # both are drawn
        error = np.hypot(np.asarray(error, float), np.asarray(recorded["standard_error"], float))
    return dataclasses.replace(check, predicted=measured, standard_error=error).passed
