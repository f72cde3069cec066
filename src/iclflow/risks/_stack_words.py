"""The risk of a stack of linear attention as a polynomial in traces of its weights.

A stack computes w_L = V b with b = (1/N) Σ yₙxₙ, and Π = I − VS is what it leaves of the task, so
that with white inputs (docs/theory/depth.md)

    L = σ_q² + E tr ΠMΠᵀ + (σ²/N) E tr VSVᵀ.

V is a sum of words in S, the Γ_l and the B_l of GD++; `_wishart_words` has the mean of each.
"""

from functools import lru_cache
from typing import NamedTuple

from ._wishart_words import canonical_cycle, trace_mean

# A letter is M (0), Γ_l (l) or B_l (L + l), negative where it is transposed; M is symmetric.
MOMENT = 0
Letters = tuple[int, ...]
# How often each word m₀ S m₁ S … S m_n occurs, each m a product of letters.
Polynomial = dict[tuple[Letters, ...], int]
# How often each product of traces occurs with each power of 1/N.
Terms = dict[tuple[Letters, ...], dict[int, int]]
_ONE: Polynomial = {((),): 1}
_GRAM: Polynomial = {((), ()): 1}


class StackTerms(NamedTuple):
    """The products of traces in the risk of a stack.

    **Fields:**

    - `signal`: those of E tr ΠMΠᵀ.
    - `noise`: those of E tr VSVᵀ.
    """

    signal: Terms
    noise: Terms


@lru_cache(maxsize=16)
def stack_terms(depth: int, moving: bool, ordered: bool) -> StackTerms:
    """The risk of a stack in traces of its letters.

    **Arguments:**

    - `depth`: L.
    - `moving`: whether layers move the inputs (GD++).
    - `ordered`: whether letters are any matrices; otherwise they are diagonal.
    """
    solution = _solution(depth, moving)
    left = _add(_ONE, _times(solution, _GRAM), -1)
    signal = _times(_times(left, _letter(MOMENT)), _transpose(left))
    noise = _times(_times(solution, _GRAM), _transpose(solution))
    return StackTerms(_mean_trace(signal, ordered), _mean_trace(noise, ordered))


def _solution(depth: int, moving: bool) -> Polynomial:
    """V: w ← w + P(b − Sw) in every layer, with P = Γ, or P = TᵀΓT where inputs are moved to Tx."""
    solution, turn = {}, _ONE
    for layer in range(1, depth + 1):
        step = _letter(layer)
        turned = _times(_transpose(turn), _times(step, turn))
        left = _add(_ONE, _times(_GRAM, solution), -1)
        solution = _add(solution, _times(turned, left))
        if moving and layer < depth:  # nothing reads what the last layer moves
            gram = _times(_times(turn, _GRAM), _transpose(turn))
            moved = _times(_times(_letter(depth + layer), gram), _times(_transpose(step), turn))
            turn = _add(turn, moved, -1)
    return solution


def _letter(letter: int) -> Polynomial:
    return {((letter,),): 1}


def _add(first: Polynomial, second: Polynomial, factor: int = 1) -> Polynomial:
    found = dict(first)
    for word, count in second.items():
        found[word] = found.get(word, 0) + factor * count
    return found


def _times(first: Polynomial, second: Polynomial) -> Polynomial:
    found: Polynomial = {}
    for a, m in first.items():
        for b, n in second.items():
            word = (*a[:-1], a[-1] + b[0], *b[1:])
            found[word] = found.get(word, 0) + m * n
    return found


def _transpose(polynomial: Polynomial) -> Polynomial:
    return {tuple(map(_flip, reversed(word))): count for word, count in polynomial.items()}


def _flip(letters: Letters) -> Letters:
    return tuple(-letter for letter in reversed(letters))


def _mean_trace(polynomial: Polynomial, ordered: bool) -> Terms:
    """The mean of the trace of a polynomial, as products of traces of letters."""
    standard = _cycle if ordered else _multiset
    found: Terms = {}
    for word, count in polynomial.items():
        # tr m₀ S m₁ … S m_n = tr S m₁ … S (m_n m₀); without any S it is a trace of letters.
        places = (*word[1:-1], word[-1] + word[0]) if word[1:] else word
        mean = trace_mean(len(places), ordered) if word[1:] else {(0, ((1,),)): 1}
        for (power, products), times in mean.items():
            traces = (standard(_fill(product, places)) for product in products)
            powers = found.setdefault(tuple(sorted(traces)), {})
            powers[power] = powers.get(power, 0) + count * times
    return found


def _fill(product: Letters, places: tuple[Letters, ...]) -> Letters:
    """The letters that stand at these places, those of negative places transposed."""
    each = (places[i - 1] if i > 0 else _flip(places[-i - 1]) for i in product)
    return sum(each, ())


def _multiset(letters: Letters) -> Letters:
    """Diagonal letters commute, and are their own transposes."""
    return tuple(sorted(map(abs, letters)))


def _cycle(letters: Letters) -> Letters:
    """One of all products with the same trace."""
    return canonical_cycle(letters, _flip(letters))
