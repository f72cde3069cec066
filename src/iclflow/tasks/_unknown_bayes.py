"""Tasks without a known Bayes predictor."""

from jaxtyping import Array, Float

from ._base import AbstractTask, Sequences


class AbstractUnknownBayes(AbstractTask):
    """A task whose Bayes predictor is not known: who asks for it is told so."""

    def bayes_predict(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        raise TypeError(
            f"The Bayes predictor of {type(self).__name__} is not known: use plain sampled targets."
        )

    def bayes_variance(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        return self.bayes_predict(sequences)
