"""Records of trainings as `icl.watch` writes them, without a training."""

import json
import math
from pathlib import Path

from iclflow.files import LOCK, seal, write_atomic

ESTIMATORS = ("one gradient step", "ridge regression", "least squares", "zero")
ABOUT = {
    **{"kind": "watch", "task": "LinearRegression", "count": 100, "seed": 0},
    **{"schedule": "every 10 steps", "bayes_loss": 0.2, "steps": None},
}


def look(number: int, shift: float = 0.0) -> dict:
    """Look number so and so of a training that turns from a gradient step to ridge regression at
    the tenth look."""
    loss = 0.2 + math.exp(-number / 12) + shift
    order = ESTIMATORS if number < 10 else (ESTIMATORS[1], ESTIMATORS[0], *ESTIMATORS[2:])
    distances = [
        {"name": name, "distance": 0.05 + 0.2 * place + shift, "error": 0.01, "step_size": None}
        for place, name in enumerate(order)
    ]
    return {
        **{"step": 10 * number, "seconds": 0.5 * number, "loss": [loss, 0.01]},
        **{"excess": [loss - 0.2, 0.005], "lengths": [0, 4, 8]},
        "losses": [[1.2, 0.02], [loss + 0.1, 0.01], [loss, 0.01]],
        "excesses": [[0.0, 0.0], [loss - 0.1, 0.01], [loss - 0.2, 0.005]],
        **{"distances": [distances], "closeness": ["near"]},
    }


def line(*arguments) -> bytes:
    return json.dumps(look(*arguments)).encode() + b"\n"


class Writer:
    """What a training does to its folder."""

    def __init__(self, folder: Path, **about):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "watch.json").write_text(seal(ABOUT | about))
        (folder / LOCK).write_text("A process of iclflow holds this folder.\n")

    @property
    def path(self) -> Path:
        return self.folder / "looks.jsonl"

    def add(self, *lines: bytes) -> None:
        with open(self.path, "ab") as stream:
            stream.write(b"".join(lines))

    def looks(self, *numbers: int, shift: float = 0.0) -> None:
        self.add(*(line(number, shift) for number in numbers))

    def resume(self, kept: int) -> None:
        """A process that goes on from an earlier look writes a new file."""
        lines = self.path.read_bytes().splitlines(keepends=True)
        write_atomic(self.path, b"".join(lines[:kept]))

    def judge(self, step: int) -> None:
        """Claims were checked on the looks up to a step."""
        claims = [
            {"id": "softmax/zero-sum-ov", "statement": "Output-value weights sum to zero.",
             "verdict": "holds", "reason": ""},
            {"id": "linear/single-drop", "statement": "There is one drop.", "verdict": None,
             "reason": "is about merged attention"},
        ]  # fmt: skip
        write_atomic(self.folder / "verdicts.json", json.dumps({"step": step, "claims": claims}))

    def end(self) -> None:
        (self.folder / LOCK).unlink()
