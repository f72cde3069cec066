"""The figures of the softmax paper: what each is called and what is to be seen in it."""

from ._base import DrawnBy, Figure

_PAPER = "arXiv 2503.12734"


def _softmax(topic: str, module: str, title: str, caption: str) -> Figure:
    """A figure of the paper, drawn by the function named like its topic."""
    name, caption = f"softmax/{topic}", " ".join(caption.split())
    draw = DrawnBy(f"_softmax_{module}", topic.replace("-", "_"), name, caption)
    return Figure(name, title, caption, _PAPER, draw)


SOFTMAX = (
    _softmax(
        "heads",
        "heads",
        "Softmax attention: what trained heads look like",
        """Key-query (upper row) and output-value circuits (lower row) of models with (a) one,
        (b) two and (c) four heads, all of Q, K, V and O trained by Adam from the usual random
        weights; one colour scale a row. Below each head its ω, the mean of the diagonal, and its
        μ, the entry that reads labels; by theory, the μ of the best single head, or the best μ
        for heads with these ω (four heads: none, since dummies are not multiples of the
        identity). The share is |μω| relative to the strongest head: dummies, below 10 %, add
        next to nothing to the step, whatever their attention.""",
    ),
    _softmax(
        "evolution",
        "heads",
        "Softmax attention: how the patterns emerge",
        """Training of two heads (left) and of four (right). (a, b) The attention ω of each
        head. (c, d) What each head reads from a label, μ, and the sum over heads, which goes to
        zero. (e, f) Of all heads together: the share of the key-query circuits on the diagonal,
        that of the output-value circuits in the label's entry, and the step Σμω with the value
        that it has for the best pair (dotted, theory).""",
    ),
    _softmax(
        "seeds",
        "seeds",
        "Softmax attention: heads of one sign are a trap",
        """Random initialisations of merged heads whose attention does not see labels, trained by
        Adam; steps, batch and seeds are in the settings. (a) Where two heads end: on the curve of
        pairs with the best μ (blue, theory), or, if both grow with the same sign, near the single
        best head, whose μ they share (black, theory for multiples of the identity). (b) Why
        trapped heads lie beside that line: their key-query matrices W are no multiples of the
        identity. Each has an antisymmetric part, a quarter to two fifths of its norm, opposite in
        the two heads. With it the loss is about 0.6 % below that of the shared head, and four
        times as many steps of four times the batch leave it there. (c) The imbalance of the
        output-value entries along training, recorded at the points: median and 10 to 90 % of
        seeds; below the dotted line, 5 %, they count as cancelled. (d) The share of seeds that
        end with one sign, with binomial standard errors, and the chance that H random signs are
        equal (dashed).""",
    ),
    _softmax(
        "landscape",
        "pair",
        "Softmax attention: the landscape of a pair, approximate and exact",
        """Loss of two heads (ω, μ), (−ω, −μ) on d = 5, L = 40, σ² = 0.1: (a) the
        large-context approximation and (b) the exact loss at finite L, each with its own gradient
        flow from (0.1, 0.1) up to the same time. The approximation has its infimum at ω → 0; the
        exact loss has a minimum (star), at the end of a flat valley along which trained models
        are still on their way (square: reported values). The floor of the valley runs along the
        weights whose step 2μω is the best one of debiased gradient descent (dashed), which such
        heads become as ω → 0. Bands are narrower in the valley.""",
    ),
    _softmax(
        "manifold",
        "pair",
        "Softmax attention: landing fast, drifting slowly",
        """Exact gradient flow of the pair from (0.1, 0.1). (a) Attention ω, (b) the step 2μω, (c)
        the loss above the smallest one. The step is right after a few units of time; from then
        on the pair drifts along the slow manifold (dashed: its own equation, started at t = 100)
        to the optimum (dotted).""",
    ),
    _softmax(
        "approximation",
        "pair",
        "Softmax attention: where the approximate losses are right",
        """Relative error of the loss of a pair, with the best debiased step, over the
        context length and the strength of attention: (a) the large-context approximation, which
        is too low (blue) but for strong attention on short contexts, and (b) the corrected first
        order in 1/L, which is too high, most where attention is strong, both against the exact
        loss at finite L. Lines are errors of ±1 % and ±10 %.""",
    ),
    _softmax(
        "estimators",
        "losses",
        "Softmax attention among estimators",
        """Loss (a) and its excess over the noise (b) against the context length: the best
        single head, the best pair, one step of debiased and of plain gradient descent, the bound
        for any number of heads, and the Bayes predictor. Lines are theory, circles the exact
        risk, by quadrature, of models with the weights that theory calls best. Pair, debiased and
        plain gradient descent all but coincide.""",
    ),
    _softmax(
        "context",
        "losses",
        "Longer contexts at test time",
        """Optimal models for d = 10, L = 20, tested at other context lengths: the softmax pair,
        the single softmax head, linear attention divided by the length of the test, the same as a
        plain sum, and linear attention retrained at each length. Lines are theory, circles the
        exact risk of the models. Softmax heads go on improving towards σ² + (1 − Σμω)² (dashed);
        the plain sum is right at its own length alone, and diverges.""",
    ),
    _softmax(
        "dynamics",
        "tasks",
        "Softmax attention: training follows the reduced flow",
        """Two heads with full key-query matrices, started at ±0.1 I and trained by stochastic
        gradient descent with labels integrated out: (a) ω, the mean of the diagonal, and (b) μ of
        both heads at the recorded steps (circles), and the gradient flow of the pair (dashed,
        theory), in which a step of rate η is a time of 2η.""",
    ),
    _softmax(
        "anisotropic",
        "tasks",
        "Softmax attention on inputs of unequal variances",
        """(a, b) Key-query matrices of a trained pair, (c) the matrix Σ μW that it applies to
        the gradient, all in the eigenbasis of the covariance Λ of the inputs. (d) The diagonal of
        that matrix (circles) against the eigenvalues of Λ, and the preconditioner
        1/(λ + (tr Λ + dσ²)/L) (dashed, theory).""",
    ),
    _softmax(
        "tasks",
        "tasks",
        "Softmax attention on two overlapping tasks",
        """Task 1 reads the coordinates S₁ = 1 to 4, task 2 reads S₂ = 3 to 6. (a, b) What three
        and five trained heads attend to, ω for each coordinate, and return for each task, μ; a row
        is a head, colours have one scale for both models. Heads work for both tasks at once, also
        where there are enough for a pair each: beside each row the number of tasks that the head
        works for, (Σs)²/Σs² with s = |μω̄|. (c) Loss beyond the noise, mean of both tasks with
        standard errors, against the smallest that so many small heads allow (dashed): from three
        heads on, the floor of debiased gradient descent for each task. Trained heads stay up to
        3 % above it, since their attention is finite.""",
    ),
)
