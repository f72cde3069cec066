"""Verification: claims and the figures that show them, computed into a report."""

from ._report import PAGES as PAGES
from ._report import Report as Report
from ._verify import select as select
from ._verify import verify as verify
