"""Claims: every sentence of the papers that can be tested, and its test."""

from ._base import TIERS as TIERS
from ._base import Check as Check
from ._base import Claim as Claim
from ._base import Inconclusive as Inconclusive
from ._base import Outcome as Outcome
from ._base import run_claim as run_claim
from ._lab import Lab as Lab
from ._registry import all_claims as all_claims
from ._registry import claim as claim
from ._registry import select_claims as select_claims
