"""Engines: where the batches of a sweep are computed."""

from ._base import Engine as Engine
from ._base import Progress as Progress
from ._local import LocalEngine as LocalEngine
from ._ray import RayEngine as RayEngine
