"""Sampled softmax attention in one pass over the tokens, without storing a sequence."""

from ._engine import Engine as Engine
from ._engine import engine as engine
from ._law import WhiteLaw as WhiteLaw
from ._law import words_of as words_of
from ._pass import Numbers as Numbers
from ._pass import lanes_of as lanes_of
from ._philox import Functions as Functions
from ._risk import AbstractFusedRisk as AbstractFusedRisk
from ._risk import FusedBatchRisk as FusedBatchRisk
from ._risk import can_be_fused as can_be_fused
from ._risk import compiles_soon as compiles_soon
from ._risk import loss_and_slopes as loss_and_slopes
from ._spec import EngineName as EngineName
from ._spec import Spec as Spec
from ._spec import has_few_sums as has_few_sums
