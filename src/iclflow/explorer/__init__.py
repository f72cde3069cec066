"""The explorer: a page on which one changes the world and watches attention learn in it."""

from ._presets import presets as presets
from ._server import explore as explore
from ._server import is_local as is_local
