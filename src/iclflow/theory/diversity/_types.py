"""What the functions of this room take: arrays, or lists of numbers in their place."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import ArrayLike, Real

# Axes are checked inside, where the message can say what is allowed.
Numbers = Real[ArrayLike, "..."] | Sequence[float]
Vector = Real[ArrayLike, " _"] | Sequence[float]
Matrix = Real[ArrayLike, "_ _"] | Sequence[Vector]
Stack = Real[ArrayLike, "_ _ _"] | Sequence[Matrix]

# What computations inside hand on: NumPy makes numbers of arrays without axes.
Values = np.ndarray | np.floating
