"""Whether scalar layers are the best of all matrices: the Hessian of the risk across them.

At Γ_l = γ_lI + εA_l with traceless A_l the risk changes at order ε² by Σ_lk ⟨A_l, A_k⟩ Q_lk, with
one L × L matrix Q for symmetric A and one for antisymmetric A. With p_{<l}, p_{>l} the products of
1 − γ_js over earlier and later layers,

    Q_lk = (a ± b)[p_{>l}p_{>k}, (s² + cs)p_{<l}p_{<k}]
           ± 1_{l>k} (a ± b)[2p_{<k}(sp − c(1 − p))p_{>l}, s p_{k<·<l}],

+ for symmetric, − for antisymmetric; a and b of two polynomials come from E[tr f tr g] and
E tr fg. Derived in docs/theory/depth.md.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.polynomial import polynomial

from ...errors import Refusal
from ...tasks import LinearRegression
from ._spectrum import Sizes
from ._stack import Steps, check_steps
from ._wishart import HIGHEST, trace_moment


class TransverseCurvatures(NamedTuple):
    """Eigenvalues of the forms Q, increasing, in units of the risk R times d.

    - `symmetric`: for traceless symmetric A_l.
    - `antisymmetric`: for antisymmetric A_l. A negative one means that key-query matrices with such
      a part do better than every scalar near by.
    """

    symmetric: Float[np.ndarray, " L"]
    antisymmetric: Float[np.ndarray, " L"]


def transverse_curvatures(task: LinearRegression | Sizes, steps: Steps) -> TransverseCurvatures:
    """How the risk of white inputs bends across the scalar layers with these steps.

    **Arguments:**

    - `steps`: γ_l in the order of the layers, which matters here; at most 12.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), context=20)
    >>> best = icl.theory.depth.optimal_stack(task, 2).steps
    >>> found = icl.theory.depth.transverse_curvatures(task, best)
    >>> found.symmetric.round(4), found.antisymmetric.round(4)
    (array([0.1528, 0.8937]), array([0.142 , 0.5705]))

    ```
    """
    sizes, steps = Sizes.of(task), check_steps(steps)
    if sizes.dim == 1:
        raise Refusal("`task` has one dimension: all matrices are scalars.")
    if 2 * len(steps) > HIGHEST:
        raise Refusal(f"`steps` holds {len(steps)} layers: at most {HIGHEST // 2} are possible.")
    forms = [_form(sizes, steps, sign) for sign in (1, -1)]
    return TransverseCurvatures(*(np.linalg.eigvalsh((q + q.T) / 2) for q in forms))


def _form(sizes: Sizes, steps: np.ndarray, sign: int) -> np.ndarray:
    count, cost = len(steps), sizes.noise / (sizes.length * sizes.signal)
    moments = _pair_moments(sizes, 2 * count)
    below = lambda l: _product(steps[:l])
    above = lambda l: _product(steps[l + 1 :])
    p, s = _product(steps), np.array([0.0, 1.0])
    drive = polynomial.polysub(polynomial.polymul(s, p), cost * polynomial.polysub([1.0], p))

    def pair(f: np.ndarray, g: np.ndarray) -> float:
        product = float(np.asarray(f) @ moments[0][: len(f), : len(g)] @ g)
        fg = polynomial.polymul(f, g)
        joint = float(fg @ moments[1][: len(fg)])
        dim = sizes.dim
        b = (dim * joint - product) / (dim * (dim - 1) * (dim + 2))
        return (product - 2 * b * dim) / dim**2 + sign * b

    form = np.zeros((count, count))
    for l in range(count):
        for k in range(count):
            inner = _times([0.0, cost, 1.0], below(l), below(k))
            form[l, k] = pair(_times(above(l), above(k)), inner)
            if l > k:
                first, between = _times([2.0], below(k), drive, above(l)), steps[k + 1 : l]
                form[l, k] += sign * pair(first, _times(s, _product(between)))
    return form


def _pair_moments(sizes: Sizes, highest: int) -> tuple[np.ndarray, np.ndarray]:
    """E[tr S^i tr S^j] with i + j up to `highest` (NaN beyond), and E tr S^k."""
    unit = lambda k: (sizes.variance / sizes.length) ** k
    of = lambda *powers: trace_moment(sizes.dim, sizes.length, powers) * unit(sum(powers))
    single = np.array([of(k) for k in range(highest + 1)])
    double = np.zeros((highest + 1, highest + 1))
    for i in range(highest + 1):
        for j in range(highest + 1 - i):
            double[i, j] = of(i, j)
    return double, single


def _product(steps: np.ndarray) -> np.ndarray:
    """The coefficients of Π(1 − γs), lowest first."""
    return _times([1.0], *([1.0, -step] for step in steps))


def _times(*factors: list[float] | np.ndarray) -> np.ndarray:
    """The coefficients of a product of polynomials."""
    product = np.ones(1)
    for factor in factors:
        product = np.convolve(product, factor)
    return product
