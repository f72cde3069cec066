"""The process: its start-up, cores and threads, compile cache, workers, progress, versions.

Nothing heavy is loaded here: a command prints its help without loading JAX.
"""

from ._activity import Activity as Activity
from ._activity import Progress as Progress
from ._activity import hide_progress as hide_progress
from ._activity import show_progress as show_progress
from ._bar import progress_bar as progress_bar
from ._start import NUMERICAL as NUMERICAL
from ._start import cache_folder as cache_folder
from ._start import compile_quickly as compile_quickly
from ._start import enable_compile_cache as enable_compile_cache
from ._start import installed_versions as installed_versions
from ._start import quick_options as quick_options
from ._start import source_commit as source_commit
from ._start import start as start
from ._start import usable_cores as usable_cores
from ._start import use_one_thread as use_one_thread
from ._workers import WorkerDied as WorkerDied
from ._workers import WorkerProcess as WorkerProcess
