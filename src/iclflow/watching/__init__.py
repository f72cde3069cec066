"""Watching: other people's models, measured while they train."""

from ._look import Distance as Distance
from ._look import Look as Look
from ._predictions import PredictionError as PredictionError
from ._record import read_looks as read_looks
from ._watch import Watch as Watch
from ._watch import watch as watch
