"""Sampled softmax attention in one pass over the tokens, without storing a sequence."""

from ._law import WhiteLaw as WhiteLaw
from ._law import words_of as words_of
from ._risk import AbstractFusedRisk as AbstractFusedRisk
from ._risk import FusedBatchRisk as FusedBatchRisk
from ._risk import has_a_pass as has_a_pass
