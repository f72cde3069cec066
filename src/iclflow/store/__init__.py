"""Runs on disk: folders that are complete or can be taken up, lists of them, and their upkeep."""

from ._catalogue import StoredRun as StoredRun
from ._catalogue import find_run as find_run
from ._catalogue import list_runs as list_runs
from ._catalogue import litter as litter
from ._catalogue import matching as matching
from ._manifest import damage as damage
from ._manifest import read_manifest as read_manifest
from ._result_folder import check_free as check_free
from ._result_folder import result_folder as result_folder
from ._run_folder import RunFolder as RunFolder
