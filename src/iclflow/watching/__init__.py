"""Watching: other people's models, measured while they train."""

import importlib
from typing import TYPE_CHECKING

from ._columns import Columns as Columns
from ._columns import named as named
from ._files import is_watched as is_watched
from ._files import read_about as read_about
from ._follow import Follower as Follower
from ._follow import State as State
from ._follow import Turn as Turn
from ._words import describe as describe
from ._words import describe_plateaus as describe_plateaus

if TYPE_CHECKING:
    from ._adapters import Jax as Jax
    from ._adapters import Tensorboard as Tensorboard
    from ._adapters import Torch as Torch
    from ._callbacks import huggingface as huggingface
    from ._callbacks import lightning as lightning
    from ._claims import ClaimOnWatch as ClaimOnWatch
    from ._heads import Heads as Heads
    from ._heads import LayerLook as LayerLook
    from ._look import Distance as Distance
    from ._look import Look as Look
    from ._plateaus import find_drops as find_drops
    from ._plateaus import find_plateaus as find_plateaus
    from ._predictions import PredictionError as PredictionError
    from ._record import read_looks as read_looks
    from ._tables import open_tables as open_tables
    from ._watch import Watch as Watch
    from ._watch import watch as watch

# Loaded on demand: whoever follows a record does not need JAX.
_HOMES = {
    **{"Distance": "_look", "Look": "_look", "PredictionError": "_predictions"},
    **{"find_drops": "_plateaus", "find_plateaus": "_plateaus"},
    **{"read_looks": "_record", "open_tables": "_tables"},
    **{"Jax": "_adapters", "Tensorboard": "_adapters", "Torch": "_adapters"},
    **{"huggingface": "_callbacks", "lightning": "_callbacks", "ClaimOnWatch": "_claims"},
    **{"Heads": "_heads", "LayerLook": "_heads"},
    **{"Watch": "_watch", "watch": "_watch"},
}


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
