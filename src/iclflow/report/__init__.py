"""The report: claims, verdicts and figures on one self-contained HTML page. It only renders:
`iclflow.verification` computes."""

from ._info import RunInfo as RunInfo
from ._page import ReportFigure as ReportFigure
from ._page import render_report as render_report
from ._records import Record as Record
from ._text import SIGNS as SIGNS
from ._text import count_of as count_of
from ._text import error_text as error_text
from ._text import escape as escape
from ._text import left_out_text as left_out_text
from ._text import predicted_text as predicted_text
from ._text import value_text as value_text
