"""Where claims and figures get their runs: each experiment is computed once and shared."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

# A few per cent: a check that does not notice this much is not a check.
BEND = 1.03


class Lab:
    """Runs experiments, remembers them, and hands out predictions, bent ones if asked.

    **Arguments:**

    - `tier`: how much to compute: more seeds and finer scales at `"paper"`.
    - `falsify`: predictions come out deliberately wrong.
    """

    def __init__(self, tier: str = "default", falsify: bool = False):
        self.tier = tier
        self.falsify = falsify
        self.config: dict[str, Any] = {}
        self._memory: dict[str, Any] = {}

    def bent(self) -> "Lab":
        """A lab with the same results and deliberately wrong predictions."""
        other = Lab(self.tier, falsify=True)
        other._memory = self._memory
        return other

    def begin(self) -> None:
        """Forgets the settings of the claim before; results are kept."""
        self.config = {}

    def note(self, **settings: Any) -> None:
        """Records the settings under which a claim was tested."""
        self.config = self.config | settings

    def once(self, name: str, compute: Callable[[], T]) -> T:
        """The result of `compute`, computed the first time that anybody asks for `name`."""
        if name not in self._memory:
            self._memory[name] = compute()
        return self._memory[name]

    def scaled(self, smoke: int, default: int, paper: int) -> int:
        """A number (of seeds, of restarts) that depends on the tier."""
        return {"smoke": smoke, "default": default, "paper": paper}[self.tier]

    def predict(self, value: T, wrong: Any = None) -> T:
        """A prediction; under `falsify`, `wrong` instead.

        By default a wrong prediction is the right one times 1.03. Where that would not be wrong
        (a count, an order, a zero), the claim says what would be.
        """
        if not self.falsify:
            return value
        return np.asarray(value, float) * BEND if wrong is None else wrong  # pyright: ignore[reportReturnType]
