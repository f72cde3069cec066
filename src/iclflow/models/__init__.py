"""Models: weights, a prediction, and circuits."""

from ._attention import AbstractAttention as AbstractAttention
from ._base import AbstractModel as AbstractModel
from ._base import Form as Form
from ._base import Normaliser as Normaliser
from ._base import attention_length as attention_length
from ._blind_factored import BlindFactored as BlindFactored
from ._decomposable import AbstractSpectral as AbstractSpectral
from ._each import map_models as map_models
from ._each import steps_of as steps_of
from ._equivalents import ConvolutionalLinear as ConvolutionalLinear
from ._equivalents import TwoLayerLinear as TwoLayerLinear
from ._equivalents import cubic_features as cubic_features
from ._factored import FactoredAttention as FactoredAttention
from ._initialise import FULL_SCHEMES as FULL_SCHEMES
from ._initialise import MERGED_SCHEMES as MERGED_SCHEMES
from ._initialise import SCHEMES as SCHEMES
from ._initialise import STRUCTURED_SCHEMES as STRUCTURED_SCHEMES
from ._merged import FullMergedKQ as FullMergedKQ
from ._merged import MergedKQ as MergedKQ
from ._multi_attention import AbstractMultiAttention as AbstractMultiAttention
from ._multi_attention import MultiFactored as MultiFactored
from ._multi_attention import MultiMergedKQ as MultiMergedKQ
from ._multi_attention import MultiStructured as MultiStructured
from ._restore import assemble as assemble
from ._restore import count_inputs as count_inputs
from ._restore import restore_model as restore_model
from ._separate import FullSeparateKQ as FullSeparateKQ
from ._separate import SeparateKQ as SeparateKQ
from ._single import axes_of_weights as axes_of_weights
from ._spectral import BalancedSpectral as BalancedSpectral
from ._spectral import SpectralAttention as SpectralAttention
from ._stack import AttentionStack as AttentionStack
from ._structured import StructuredAttention as StructuredAttention

MODELS: dict[str, type[AbstractModel]] = {
    model.__name__: model
    for model in (
        MergedKQ,
        FullMergedKQ,
        SeparateKQ,
        FullSeparateKQ,
        TwoLayerLinear,
        ConvolutionalLinear,
        StructuredAttention,
        FactoredAttention,
        MultiMergedKQ,
        MultiFactored,
        MultiStructured,
        BlindFactored,
        SpectralAttention,
        BalancedSpectral,
        AttentionStack,
    )
}
