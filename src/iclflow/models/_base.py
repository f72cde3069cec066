"""The interface of models: weights and a prediction; and the one place of the factor 1/N."""

import abc
from typing import Any, Literal, get_args

import equinox as eqx
from jaxtyping import Array, Float

from ..tasks import Sequences, check_choice
from ._fields import refuse_stacks

Normaliser = Literal["context", "tokens", "none"]
"""What linear attention divides its sums by; see `attention_length`.

**Example:**

```pycon
>>> import typing
>>> typing.get_args(icl.models.Normaliser)
('context', 'tokens', 'none')
```
"""
Form = Literal["bilinear", "cubic", "general"]
"""How a prediction depends on the tokens; see `AbstractModel.form`.

**Example:**

```pycon
>>> import typing
>>> typing.get_args(icl.models.Form)
('bilinear', 'cubic', 'general')
```
"""


def attention_length(length: Any, normaliser: Normaliser) -> Any:
    """What linear attention divides its sums by: the factor 1/N of the theory.

    - `"context"`: N, the number of labelled pairs. The default everywhere.
    - `"tokens"`: N + 1, the query counted too (the papers' code with varying lengths).
    - `"none"`: 1, no normalisation (the papers' code at fixed length).

    **Example:**

    ```pycon
    >>> [icl.models.attention_length(31.0, kind) for kind in ("context", "tokens", "none")]
    [31.0, 32.0, 1.0]
    ```
    """
    check_choice("normaliser", normaliser, get_args(Normaliser))
    if normaliser == "context":
        return length
    # Without a normaliser: ones in the shape of `length`, which may be a number or any array.
    return length + 1 if normaliser == "tokens" else length * 0 + 1


class AbstractModel(eqx.Module):
    """Weights and a prediction. A model knows its own circuits, never a task or an optimiser.

    To write your own model, subclass this and implement `predict`: it can be trained on the sampled
    and the data-set risk. If the prediction is linear in known features of the sequence, implement
    `form` and `coefficients` too, and it gets the exact and the sufficient-statistics risks.

    Methods compute with the weights of one model: on a stack, such as the `models` of a run, they
    raise an error. Properties are the same for a stack and its models.

    **Example:**

    ```pycon
    >>> class LastLabel(icl.AbstractModel):
    ...     def predict(self, sequences):
    ...         return sequences.y[..., -1, :]
    >>> task = icl.isotropic(dim=3, noise=0.1)
    >>> risk = icl.risk(task, LastLabel(), "sampled", batch=1000)
    >>> risk(LastLabel(), jr.key(0)).shape
    ()
    ```
    """

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        refuse_stacks(cls)

    @abc.abstractmethod
    def predict(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        """The predicted query labels of each sequence; any leading batch axes."""

    @property
    def labels(self) -> int:
        """I, the number of labels that are predicted."""
        return 1

    @property
    def form(self) -> Form:
        """How the prediction depends on the sequence.

        - `"bilinear"`: one label, ŷ = βᵀ A x_q with β = (1/N) Σ yₙxₙ; `coefficients()` is A,
          (D, D).
        - `"cubic"`: one label, ŷ = Σ θ_abc G_ab x_q,c with G = (1/N)(Σ zₙzₙᵀ + z_q z_qᵀ),
          z = (x; y), z_q = (x_q; 0); `coefficients()` is θ, (D+1, D+1, D).
        - `"general"`: anything else.
        """
        return "general"

    def coefficients(self) -> Array:
        """The coefficients of the features; see `form`."""
        raise TypeError(f"{type(self).__name__} has no features of fixed form.")

    @property
    def divides_by(self) -> Normaliser:
        """What the sums over the context in `form`'s features are divided by."""
        return getattr(self, "normaliser", "context")

    @property
    def coefficient_rank(self) -> int | None:
        """The largest rank that a bilinear A can take whatever the weights; None: any."""
        return None

    @property
    def coefficient_basis(self) -> Float[Array, "K D D"] | None:
        """Matrices of which a bilinear A is always a sum, and whose every sum it can take; None: it
        can take every matrix of its rank."""
        return None
