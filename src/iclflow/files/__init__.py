"""Files on disk: atomic writes, locks on folders, and which files iclflow wrote."""

from ._atomic import is_sealed as is_sealed
from ._atomic import leftovers as leftovers
from ._atomic import printable as printable
from ._atomic import read_regular as read_regular
from ._atomic import read_sealed as read_sealed
from ._atomic import seal as seal
from ._atomic import sha256 as sha256
from ._atomic import sha256_of as sha256_of
from ._atomic import temporary_file as temporary_file
from ._atomic import write_atomic as write_atomic
from ._content import FileError as FileError
from ._content import parse_json as parse_json
from ._content import to_plain as to_plain
from ._lock import LOCK as LOCK
from ._lock import FolderInUse as FolderInUse
from ._lock import folder_lock as folder_lock
from ._lock import is_own_lock as is_own_lock
from ._own import MANIFEST as MANIFEST
from ._own import MARKER as MARKER
from ._own import OTHER_FOLDER as OTHER_FOLDER
from ._own import ForeignFile as ForeignFile
from ._own import OwnFiles as OwnFiles
from ._own import find_list_error as find_list_error
from ._own import folder_removed as folder_removed
from ._own import write_own as write_own
from ._toml import to_toml as to_toml
