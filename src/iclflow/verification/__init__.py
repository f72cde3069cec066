"""Verification: claims and the figures that show them, computed into a report."""

from ._record import compare as compare
from ._record import read_records as read_records
from ._record import write_records as write_records
from ._report import PAGES as PAGES
from ._report import Report as Report
from ._verify import select as select
from ._verify import verify as verify
