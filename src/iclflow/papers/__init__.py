"""The papers: studies, claims on them and figures of them, one folder per paper.

A new study, claim, figure or diagram is a new file in the folder of its paper, and is found there.
Nothing of a paper is loaded before it is used.
"""

from ..studies import PAPERS as PAPERS
from ..studies import STUDIES as STUDIES
from ..studies import SUBJECTS as SUBJECTS
from ..studies import TIERS as TIERS
from ..studies import Study as Study
from ..studies import find_study as find_study
from ..studies import read_settings as read_settings
from ..studies import study as study
from ..studies import task_settings as task_settings
from ._check import Check as Check
from ._check import Checks as Checks
from ._citation import citation as citation
from ._claim import CLAIMS as CLAIMS
from ._claim import VERDICTS as VERDICTS
from ._claim import Claim as Claim
from ._claim import Inconclusive as Inconclusive
from ._claim import Outcome as Outcome
from ._claim import all_claims as all_claims
from ._claim import claim as claim
from ._claim import claim_on_run as claim_on_run
from ._claim import run_claim as run_claim
from ._claim import select_claims as select_claims
from ._diagram import DIAGRAMS as DIAGRAMS
from ._diagram import Diagram as Diagram
from ._diagram import Swept as Swept
from ._diagram import diagram as diagram
from ._figure import FIGURES as FIGURES
from ._figure import Figure as Figure
from ._figure import figure as figure
from ._given import Given as Given
from ._given import Need as Need
from ._given import OnRun as OnRun
from ._given import on_run as on_run
from ._lab import Lab as Lab
from ._lab import once as once
from ._ledger import Statement as Statement
from ._ledger import statements_of as statements_of
from ._listing import listed_claims as listed_claims
from ._listing import listed_figures as listed_figures
from ._on_run import check_run as check_run
from ._on_run import claims_on as claims_on
from ._on_run import claims_on_runs as claims_on_runs
from ._on_run import find_claim_on_runs as find_claim_on_runs
from ._on_run import strain as strain
from ._power import power_of as power_of
