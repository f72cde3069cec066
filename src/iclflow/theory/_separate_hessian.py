"""Curvature at the stationary points of separate key-query attention: Hessian, index, escape.

Heads can represent a stationary function A_S in many ways. A layout is one of them: a tuple with
the components of each active head; other heads are zero. Derived in docs/theory/linear.md.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from ..errors import Refusal
from ..tasks import LinearRegression
from ._check import check_whole
from ._moments import Moments, Normaliser
from ._separate_modes import Modes, check_components, modes

Layout = Sequence[Sequence[int]]


class EscapeDirection(NamedTuple):
    """One way in which the loss falls from a stationary point.

    - `component`, `head`: which component starts to be learned, and by which head.
    - `kind`: `"exponential"` where the Hessian has a negative eigenvalue; `"algebraic"` where an
      idle head enters only through −2 v kᵀEq, so that τ dv/dt = `rate` · v² and the time to leave
      is inversely proportional to the initial weights.
    - `hessian_eigenvalue`: negative, or 0 for an algebraic direction.
    - `rate`: of exp(`rate` · t/τ), or the coefficient of v².
    - `sign_patterns`: the signs of (v, k, q) that grow, for an algebraic direction.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.3], context=31)
    >>> worse = icl.theory.stationary_points(task, heads=2)[2]
    >>> worse.components
    (1,)
    >>> for escape in worse.escape_directions:
    ...     print(escape.component, escape.head, escape.kind, round(escape.rate, 4))
    ...
    0 0 exponential 0.0324
    0 1 algebraic 0.16
    ```
    """

    component: int
    head: int
    kind: Literal["exponential", "algebraic"]
    hessian_eigenvalue: float
    rate: float
    sign_patterns: tuple[tuple[int, int, int], ...]


SIGN_PATTERNS = ((1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1))


def separate_representative(
    task: LinearRegression,
    layout: Layout,
    heads: int,
    rank: int,
    normaliser: Normaliser = "context",
) -> tuple[Float[np.ndarray, " H"], Float[np.ndarray, "H D R"], Float[np.ndarray, "H D R"]]:
    """Balanced weights (v, K, Q) of a stationary point: KᵀK = QᵀQ and v² = ‖K‖² in every head.

    **Arguments:**

    - `layout`: the components of each active head, at most `rank` of them. Heads that list the
      same component share it equally.
    - `heads`, `rank`: H and R; heads beyond the layout are zero.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.3], context=31)
    >>> v, K, Q = icl.theory.separate_representative(task, layout=[[0], [1]], heads=2, rank=1)
    >>> A = np.einsum("h,hdr,her->de", v, K, Q)
    >>> bool(np.allclose(A, icl.theory.optimal_matrix(task)))
    True
    >>> gram, sizes = icl.theory.separate_conserved(v, K, Q)
    >>> bool(np.allclose(gram, 0)), bool(np.allclose(sizes, 0))
    (True, True)
    ```
    """
    found = modes(task, normaliser)
    return representative_weights(found, check_layout(found, layout, heads, rank), heads, rank)


def hessian_index(
    task: LinearRegression, layout: Layout, rank: int, normaliser: Normaliser = "context"
) -> int:
    """How many negative eigenvalues the Hessian has at the balanced representative of a layout.

    index = Σ_{j ∈ S} Σ_{d ∉ S} [(n_j − 1) + 1(y_d > y_j)] + Σ_{active h} (R − r_h)(J − |S|)

    for n_j heads on component j and r_h of R ranks used by head h. Idle heads at zero add nothing:
    their instability is of third order.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.3, 0.2], context=31)
    >>> icl.theory.hessian_index(task, layout=[[0]], rank=1)
    0
    >>> # Components 0 and 1 have larger gains than component 2.
    >>> icl.theory.hessian_index(task, layout=[[2]], rank=1)
    2
    >>> # Two heads on one component: one of them can turn to either of the others.
    >>> icl.theory.hessian_index(task, layout=[[0], [0]], rank=1)
    2
    ```
    """
    found = modes(task, normaliser)
    return layout_index(found, check_layout(found, layout, len(layout) or 1, rank), rank)


def layout_index(found: Modes, layout: Layout, rank: int) -> int:
    """`hessian_index` for components that are already computed."""
    sharing = {j: sum(j in head for head in layout) for head in layout for j in head}
    missing = [d for d in range(found.count) if d not in sharing]
    better = sum(found.group_of(d) < found.group_of(j) for j in sharing for d in missing)
    shared = sum(count - 1 for count in sharing.values()) * len(missing)
    unused = sum(rank - len(head) for head in layout) * len(missing)
    return better + shared + unused


def representative_weights(found: Modes, layout: Layout, heads: int, rank: int):
    """`separate_representative` for components that are already computed."""
    dim = found.left.shape[0]
    v, K, Q = np.zeros(heads), np.zeros((heads, dim, rank)), np.zeros((heads, dim, rank))
    for h, components in enumerate(layout):
        share = [1 / sum(j in other for other in layout) for j in components]
        chosen = list(components)
        block = (found.left[:, chosen] * found.strengths[chosen] * share) @ found.right[:, chosen].T
        left, sizes, right = np.linalg.svd(block)
        used = slice(0, len(chosen))
        # v K Qᵀ = block with K, Q of equal singular values and v² = ‖K‖² = Σ sizes / v.
        v[h] = np.cbrt(np.sum(sizes[used]))
        K[h, :, used] = left[:, used] * np.sqrt(sizes[used] / v[h])
        Q[h, :, used] = right[used].T * np.sqrt(sizes[used] / v[h])
    return v, K, Q


def separate_hessian(
    m: Moments, v: np.ndarray, K: np.ndarray, Q: np.ndarray
) -> Float[np.ndarray, "n n"]:
    """∂²L/∂W∂W′ with W = (v, K, Q) flattened in this order: 2⟨∂A, C ∂A Λ⟩ − 2⟨E, ∂²A⟩."""
    heads, dim, rank = K.shape
    force = m.force(np.einsum("h,hdr,her->de", v, K, Q))
    one = np.eye(dim)
    by_v = np.einsum("hdr,her->hde", K, Q)
    by_k = np.einsum("h,her,cd->hcrde", v, Q, one)
    by_q = np.einsum("h,hdr,ce->hcrde", v, K, one)
    slopes = np.concatenate([b.reshape(-1, dim, dim) for b in (by_v, by_k, by_q)])
    bent = m.second_moment @ slopes @ m.covariance
    size = slopes.shape[0]
    hessian = 2 * slopes.reshape(size, -1) @ bent.reshape(size, -1).T
    # ∂²A couples v, K and Q of one head only.
    along_k, along_q = np.einsum("de,her->hdr", force, Q), np.einsum("de,hdr->her", force, K)
    mixed = np.einsum("h,de,rs->hdres", v, force, np.eye(rank))
    for h in range(heads):
        rows_k = heads + h * dim * rank + np.arange(dim * rank)
        rows_q = rows_k + heads * dim * rank
        pairs = (
            (np.array([h]), rows_k, along_k[h].reshape(1, -1)),
            (np.array([h]), rows_q, along_q[h].reshape(1, -1)),
            (rows_k, rows_q, mixed[h].reshape(dim * rank, dim * rank)),
        )
        for rows, columns, value in pairs:
            hessian[np.ix_(rows, columns)] -= 2 * value
            hessian[np.ix_(columns, rows)] -= 2 * value.T
    return hessian


def escape_directions_of(
    m: Moments, found: Modes, layout: Layout, heads: int, rank: int
) -> tuple[EscapeDirection, ...]:
    """Every escape direction of a layout, exponential ones first, fastest first in each kind."""
    active = len(layout)
    learned = {j for head in layout for j in head}
    missing = [d for d in range(found.count) if d not in learned]
    escapes = []
    index = layout_index(found, layout, rank)
    if index > 0:
        v, K, Q = representative_weights(found, layout, active, rank)
        values, vectors = np.linalg.eigh(separate_hessian(m, v, K, Q))
        # As many as the index says: rounding turns flat directions into ±1e-16.
        for n in range(index):
            head, component = _attribute(found, missing, vectors[:, n], K.shape)
            value = float(values[n])
            escapes.append(EscapeDirection(component, head, "exponential", value, -value / 2, ()))
    for d in sorted(missing, key=lambda d: -found.growth_rates[d]):
        rate = float(found.growth_rates[d])
        escapes += [
            EscapeDirection(d, head, "algebraic", 0.0, rate, SIGN_PATTERNS)
            for head in range(active, heads)
        ]
    return tuple(escapes)


def check_layout(found: Modes, layout: Layout, heads: int, rank: int) -> Layout:
    """`layout` as tuples of existing components that fit into the heads and ranks."""
    heads, rank = check_whole("heads", heads), check_whole("rank", rank)
    if len(layout) > heads:
        raise Refusal(f"`layout` has {len(layout)} active heads: `heads` = {heads} allows fewer.")
    clean = tuple(check_components(found, head) for head in layout)
    for head in clean:
        if not 1 <= len(head) <= rank:
            raise Refusal(
                f"`layout` holds a head with {len(head)} components: must be 1 to `rank` = {rank}."
            )
    return clean


def _attribute(found: Modes, missing, vector: np.ndarray, shape) -> tuple[int, int]:
    """The head and the unlearned component that a direction in weight space belongs to."""
    heads, dim, rank = shape
    delta_k, delta_q = vector[heads:].reshape(2, heads, dim, rank)
    # Dual vectors read off how much of each component there is where components are not orthogonal.
    dual_left = np.linalg.pinv(found.left)[missing]
    dual_right = np.linalg.pinv(found.right)[missing]
    weight = np.sum(np.einsum("jd,hdr->hjr", dual_left, delta_k) ** 2, -1)
    weight += np.sum(np.einsum("jd,hdr->hjr", dual_right, delta_q) ** 2, -1)
    head, index = np.unravel_index(np.argmax(weight), weight.shape)
    return int(head), missing[index]
