"""The figures of the multi-task paper: what each is called and what is to be seen in it."""

from ._base import DrawnBy, Figure

_PAPER = "arXiv 2402.19442"


def _multitask(topic: str, module: str, title: str, caption: str, number: int = 0) -> Figure:
    """A figure of the paper (of that number there), drawn by the function named like its topic."""
    name, caption = f"multitask/{topic}", " ".join(caption.split())
    draw = DrawnBy(f"_multitask_{module}", topic.replace("-", "_"), name, caption)
    paper = f"{_PAPER}, Figure {number}" if number else _PAPER
    return Figure(name, title, caption, paper, draw)


MULTITASK = (
    _multitask(
        "phases",
        "phases",
        "Several tasks: three phases of training",
        """Three heads on three equal tasks (d = 30, L = 100, no noise), head i slightly ahead on
        task i: gradient flow of full factors K, Q, V and O in random frames (lines), and the flow
        of their singular values (dashed, theory). (a to c) Attention ω and (d to f) weights on
        labels μ of all heads on each task; the two heads that lose a task coincide, one drawn
        wider. (g) The loss, with its phases from a detector: emergence is from 5 % to 95 % of the
        way to one head a task. (h) ω at the end: what is left beside the diagonal falls as 1/t.
        Times are twice those of the paper, whose flow follows −∂L/∂W. The limit is not the
        smallest loss of three heads: the lower bound is 39 % below it.""",
        1,
    ),
    _multitask(
        "architecture",
        "architecture",
        "Multi-head softmax attention and its parts",
        """Tokens hold an input x and labels y; the query has no labels. Of the keys K, queries Q
        and values V some columns read inputs and some read labels. What acts are the products W
        and U: rows of W that read labels, W_Y, and columns of U that read inputs, U_X.
        Decomposable weights have zeros there (hatched), and gradient flow of the factors keeps
        them: scores then depend on inputs alone, and outputs are means of labels. Q_Y never acts,
        because it meets the zero of the query.""",
        2,
    ),
    _multitask(
        "approximate-dynamics",
        "phases",
        "Several tasks: approximate equations of emergence",
        """(a) μ and (b) ω of the head of a task, along the gradient flow of Figure 1, and by two
        approximations: the head alone with its task from (ω, μ) = (0.01, 1) at t = 8 (the paper's
        4), and the emergence equation, in which μ is always at its best. The first is late and the
        second has its peak early and too high; handed over from the flow at t = 10 the head alone
        (dashed) is 2 to 3 % early. (c) dω/dt against ω: slow, fast, slow, to rest at d^−½. The
        emergence equation is right to 14 % from ω = 0.11 on and too fast before: the other heads
        still hold part of each label, and μ does not follow at once. So the sentence that
        approximate and full dynamics are consistent holds for their form, not for their times.""",
        3,
    ),
    _multitask(
        "bound-and-bayes",
        "losses",
        "Several tasks: the bound for H heads and Bayes",
        """Loss of ten tasks as a share of the signal against d̄/L, where d̄ is the size of a
        block: what H equiangular heads cannot go below (lines), small heads that come within 0.02
        % of it (circles), and the smallest loss of any predictor (line: large d and L; circles:
        exact at L = 100). From H = 11, one more than tasks, the bound falls no further. The
        caption of the paper says λ = σ² = 1, which may mean that (a) the signal of a task, λd̄, or
        (b) that of a coordinate has the variance of the noise. With (a) Bayes and many heads come
        together for large d̄/L; with (b), drawn for L = 100, they are far apart for small ones,
        since noise is small there.""",
        4,
    ),
    _multitask(
        "losses",
        "losses",
        "Several tasks: attention among estimators",
        """Loss of ten tasks as a share of the signal: ridge regression with two penalties, Bayes,
        one head a task (the limit of gradient flow, GF-ICL), and the best single head for all
        (OptS-ICL). Lines are limits for large d and L, circles exact at L = 100; heads have the
        weights of theory. (a) With the signal of a task and the noise 1 and a penalty that counts
        for each of the L samples, the sentences of the paper hold: ridge 0.05 has a peak of double
        descent near d̄ = L, attention has none and stays within 12 % of ridge 5 for d̄ > L, and
        for small d̄/L one head a task has a fraction of the loss of the single head: 0.29 at d̄ =
        L/20, and a tenth in the limit. (b) With the signal of a coordinate 1 and a penalty that
        counts once, the paper's other possible meaning, both ridges are next to Bayes and
        attention is far above all. Circles above the line of one head a task show what large
        blocks neglect.""",
        5,
    ),
    _multitask(
        "regimes",
        "regimes",
        "Softmax: exponential and saturated attention",
        """Attention p over L normal scores of standard deviation a, exact (lines) and by Monte
        Carlo (circles with standard errors, most of them smaller than the circles). (a, b) E|p|²
        relative to e^{a²}/L, which is 1 for small a, and 0.63 (a) and 0.71 (b) at √(½ log L);
        dashed with its first correction. From √(2 log L) on single points win. (c) The signal that
        a head returns, a(1 − E|p|²), and (d) its variance E|p|², with the laws a and e^{a²}/L for
        long contexts (dashed): beyond the exponential regime the signal saturates, and with it the
        variance.""",
    ),
    _multitask(
        "regularisation",
        "regimes",
        "Softmax: implicit regularisation",
        """(a) The part of the signal that comes back, on average: one head a task (1/(1 +
        eφd̄/L)), ridge regression with two penalties, counted for each sample, and Bayes; lines
        for large d and L, circles sampled at L = 100. (b) The penalty with which ridge returns as
        much as one head a task: in proportion to d̄/L, about 5.4 times that of Bayes for small
        d̄/L and 4.4 for large ones; the penalty 5 at d̄ = 1.1 L. Signal and noise of a task are 1.
        (c) The score variance dω² and (d) the concentration E|p|² of the best single head (d = 10,
        exact) relative to no noise. That noise favours spread-out attention, as a summary of the
        paper says, is so for L = 20, by some per cent; for L = 100 noise makes attention
        sharper.""",
    ),
    _multitask(
        "saddle",
        "saddle",
        "Several tasks: the limit of gradient flow is a saddle",
        """(a) Loss from the start of Figure 1 with output weights O larger than V by a relative
        imbalance δ: gradient flow of the factors (lines, circles at single late times) and of
        singular values (dashed, theory). In balance the loss rests at one head a task for ever;
        the smallest imbalance lets weights on labels of other tasks become negative, and leads on
        to the lower bound. (b) When those weights reach −0.1 (squares), and when the slope at the
        saddle says so, from the balanced flow at t = 20 (dashed; triangles in a): 9.3 units of
        time for each decade of δ. The prediction is 2 to 3 % early. The paper has balanced starts
        alone.""",
    ),
    _multitask(
        "outcomes",
        "saddle",
        "Several tasks: not every start ends with one task a head",
        """Random positive balanced starts on the tasks of Figure 1, every ω and μ up to 20 %
        smaller than the largest. (a) Losses at the end for three heads, by how many heads have a
        task, and predicted levels (dotted). (b) How far losses are above these levels: what ω on
        other tasks costs still, which falls as 1/t². (c) Shares of the outcomes with 95 %
        intervals, by the number of heads (below: how many starts). The paper has one head ahead on
        each task; of random starts with three heads half end so.""",
    ),
)
