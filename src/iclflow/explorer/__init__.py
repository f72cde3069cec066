"""The explorer: a page with controls for every setting, on which attention is trained live."""

from ._presets import presets as presets
from ._server import explore as explore
from ._server import is_local as is_local
