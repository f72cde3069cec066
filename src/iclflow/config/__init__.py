"""Configs: one validated description of an experiment, from a TOML file and flags."""

from ..errors import InputError as InputError
from ..files import to_toml as to_toml
from ._config import Config as Config
from ._files import known_keys as known_keys
from ._files import load_config as load_config
from ._files import named as named
from ._files import parse_config as parse_config
from ._files import read_toml as read_toml
from ._files import section_class as section_class
from ._files import sections as sections
from ._flags import with_flags as with_flags
from ._held_out_size import ALONE as ALONE
from ._held_out_size import COMPARED as COMPARED
from ._held_out_size import HeldOutSize as HeldOutSize
from ._limits import GIB as GIB
from ._limits import Limit as Limit
from ._limits import memory_here as memory_here
from ._limits import out_of_memory as out_of_memory
from ._memory import BASE as BASE
from ._memory import largest_setting as largest_setting
from ._memory import memory_needed as memory_needed
from ._task import MultiTask as MultiTask
