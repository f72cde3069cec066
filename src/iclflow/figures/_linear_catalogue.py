"""The figures of the linear-attention paper: what each is called and what is to be seen in it."""

from ._base import DrawnBy, Figure

_PAPER = "arXiv 2501.16265"


def _linear(topic: str, module: str, title: str, caption: str, number: int | None = None) -> Figure:
    """A figure of the paper, drawn by the function named like its topic."""
    name, caption = f"linear/{topic}", " ".join(caption.split())
    paper = _PAPER if number is None else f"{_PAPER}, Figure {number}"
    draw = DrawnBy(f"_linear_{module}", topic.replace("-", "_"), name, caption)
    return Figure(name, title, caption, paper, draw)


LINEAR = (
    _linear(
        "merged",
        "merged",
        "Merged key-query: one plateau, one drop",
        """(a) Loss of merged linear attention (eight heads, weights of 0.001) under exact
        gradient flow, its two-layer linear network on the same flow (circles), and the
        reduced equation for A started from the growing part of the initial weights (dashed),
        with the half-drop time that the initial weights predict. (b) Gradient descent on 500
        sequences, every block of the attention matrices trainable: attention and its network
        agree to rounding if the data are closed under y → −y, and part once the other blocks
        move on generic data.""",
        number=1,
    ),
    _linear(
        "landscape-merged",
        "landscape",
        "Merged key-query: one saddle and one minimum",
        """(a) Loss over the strengths of value and key-query weights, A = νω A*/‖A*‖: dark is
        low. The saddle sits at the origin, the minima fill the two white hyperbolas, and the
        path of training from small weights (orange) goes from one to the other. (b) Hessian
        eigenvalues at the saddle, of which exactly H = 3 are negative (left of the dotted
        line), and at a minimum. (c) A root finder on the gradient, started at random, ends at
        one of these two losses (dotted) and at no other.""",
    ),
    _linear(
        "white",
        "merged",
        "White inputs: the closed form of σ(t)",
        """Merged attention on white inputs from balanced weights with σ₀ = 10⁻⁴. (a) The
        strength σ(t) of A = σI, (b) the loss: simulation in colour, closed form dashed. (c)
        What is left between them.""",
    ),
    _linear(
        "merged-drop-times",
        "merged",
        "When the single drop comes",
        """(a) Half-drop time of many seeds and three scales against the time computed from
        the initial weights; bars give the mean and standard deviation that theory expects
        over Gaussian weights. (b) The relative error of each seed falls about in proportion
        to the weights.""",
    ),
    _linear(
        "staircase",
        "staircase",
        "Separate keys and queries: a staircase",
        """Gradient flow of four rank-one heads from random weights of 0.003, over linear time
        up to the third drop (left) and logarithmic time (right). (a, b) The loss rests at the
        predicted levels, m of the four components learned, and drops at the times that the
        cascade computes from the initial weights; the predicted curve lies dashed on the
        simulated one, and the equivalent sum of convolutional networks (circles) has the same
        loss. (c, d) Each drop is one component of A that rises to its final value, in the
        order of the eigenvalues.""",
        number=3,
    ),
    _linear(
        "landscape-separate",
        "landscape",
        "Separate keys and queries: all 16 stationary points",
        """(a) Loss of every stationary function for D = 4, one for each subset of components,
        named beside it; in each circle the number of negative Hessian eigenvalues. Grey lines
        join subsets that differ in one component. The path of training (orange) visits the
        five that have none: four saddles, which are left algebraically instead of
        exponentially, and the minimum. (b) A root finder on the gradient, started at random,
        ends at these losses (dotted) and at no other; restarts that do not converge, because the
        gradient is small but not zero where they are caught, are counted and left out.""",
    ),
    _linear(
        "order",
        "landscape",
        "In which order components are learned",
        """The share of seeds that learn all four components in the order of their
        eigenvalues, against the size of the initial weights, with binomial standard errors
        (Wilson). At large weights a head that starts ahead can overtake.""",
    ),
    _linear(
        "order-by-growth",
        "landscape",
        "When growth and gain disagree",
        """Two components with λ²m in one order and λm in the other. (a) The loss rests at the
        levels of all four predicted saddles; (b) magnified, the first two drops. (c, d) The
        component that grows faster is learned first, but that saddle has a negative Hessian
        eigenvalue: its head turns to the component that gains more, and a second head learns
        the first again.""",
    ),
    _linear(
        "scalar-ode",
        "staircase",
        "One aligned head a component: the scalar equation",
        """Four heads, each started along one eigenvector. (a) Their value weights follow the
        closed form of the scalar equation (dashed); heads do not interact, so that drops come
        in the order of λ²v₀ and not of λ alone. (b) The loss is the sum of four such steps.
        (c) In units of the width of its own drop every head is on one universal curve.""",
    ),
    _linear(
        "cascade",
        "staircase",
        "Drop times from the initial weights alone",
        """(a) The four drop times of each seed (weights of 10⁻⁴), measured on the exact flow,
        against those that the cascade computes from the initial weights; no parameter is
        fitted. (b) Their relative error.""",
    ),
    _linear(
        "heads",
        "staircase",
        "Too few heads: where learning stops",
        """Final loss of each seed for H heads of rank R. Training stops at the plateau of the
        first HR components (dashed): three heads of rank one end where one head of rank three
        does.""",
    ),
    _linear(
        "rank",
        "rank",
        "Rank R: which plateaus last",
        """D = 8, nine heads of rank R, one seed. (a–d) Loss from weights of 0.01; dotted, all
        predicted levels, in colour those at which R divides m and a new head must start.
        (e–h) Time from half-drop m to half-drop m + 1. Tenfold smaller weights make plateaus
        that wait for a new head (filled) roughly ten times as long; those inside a head
        (open) grow only with ln(1/s), which theory predicts for R = 8 (dashed, from 10⁻³ to
        10⁻⁴). A small eigenvalue can make a plateau inside a head longer than one that waits
        for a new head.""",
        number=4,
    ),
    _linear(
        "pcr",
        "algorithm",
        "What the model computes on each plateau",
        """(a) Root mean square distance between the predictions of a model in training and
        those of principal component regression with m population components and fixed, shrunk
        inverse variances: on plateau m it vanishes for that m. (b) The risk on each plateau
        is that of this algorithm (dashed), and larger than that of least squares in the same
        subspace (dotted). (c) Distance of the plateau's predictions from both, on fresh
        sequences.""",
    ),
    _linear(
        "context",
        "algorithm",
        "Another context length in the test",
        """Loss of a model trained at N = 31 on sequences of other lengths, by Monte Carlo
        with standard errors (points) and by theory (lines). Divided by the length, attention
        improves towards a floor (dotted), because its weights stay shrunk for the length of
        training; not divided, it diverges.""",
    ),
    _linear(
        "softmax",
        "algorithm",
        "Softmax attention: one drop, several drops",
        """Training loss of softmax attention on a fixed set of sequences, (a) with merged
        key-query, (b) with separate keys and queries of rank one. Thick bars are the plateaus
        that are found on the curves without theory: softmax attention learns like linear
        attention, in one drop and in several.""",
        number=5,
    ),
    _linear(
        "in-weight",
        "algorithm",
        "From in-weight to in-context learning",
        """Merged attention with all blocks, trained on a share p of sequences with a random
        task vector and 1 − p with one fixed vector. (a) Training loss. (b) Losses at the end,
        against exact steady states (dashed). The more random tasks, the better the in-context
        test; where context labels are random (in-weight test) the model trusts them all the
        same, and from p = 0.2 on does no better than predicting zero, a loss of 1. (c) Only
        at p = 1 do the blocks u and h, which store the fixed vector, stay where they started,
        at zero up to rounding.""",
    ),
    _linear(
        "scale",
        "scale",
        "What the scale of the initial weights does",
        """(a, b) Loss of separate and of merged attention from initial weights of several
        sizes, over logarithmic time; dotted, the predicted plateaus; dashed, the curve that is
        predicted from the initial weights, for s ≤ 0.01 alone, because it is the limit of small
        ones. Large weights blur the staircase into one smooth decay. (c) Separate: the share of
        the run that is spent off plateaus is proportional to s where s is small. (d) Merged:
        tenfold smaller weights only delay the drop, by ln 10 / g.""",
        number=6,
    ),
    _linear(
        "lazy",
        "scale",
        "Very large weights: the frozen kernel",
        """Merged attention with paired heads, so that A = 0 at the start. (a) The larger the
        weights, the closer the loss is to the sum of exponentials that a kernel frozen at its
        initial value gives (dashed). (b) The largest deviation falls as the inverse square of
        Hs²/‖A*‖.""",
    ),
    _linear(
        "rich-to-lazy",
        "scale",
        "From sigmoid to exponential in one formula",
        """White inputs, value and key-query weights of unequal size. (a) Strength of A and
        (b) loss for four imbalances δ = ν² − ω², relative to the cross-over at 2‖A*‖; the
        exact solution lies dashed on each. Small imbalance gives a plateau and a sigmoid,
        large imbalance an exponential from the first moment.""",
    ),
)
