"""Means of traces of words in a Wishart matrix S = (1/N) Σ xₙxₙᵀ, x ~ N(0, I), and other matrices.

Integration by parts on the first x of E tr(S D₁ S D₂ … S D_n)·Φ, Φ being a product of other such
traces, gives (docs/theory/depth.md; arXiv 2306.00297 has L = 1 alone)

    (D₂ … D_{n−1}, D_n D₁)
    + 1/N Σ_{j≥2} (D₁ … D_{j−2}, D_{j−1}D_nᵀ, D_{n−1}ᵀ … D_jᵀ)
    + 1/N Σ_{j≥2} (D₁ … D_{j−1}) (D_{j+1} … D_{n−1}, D_nD_j)
    + 1/N Σ_{E in Φ} Σ_k [(D₁ … D_{n−1}, D_nE_k, E_{k+1} … E_{k−1})
                          + (D₁ … D_{n−1}, D_nE_{k−1}ᵀ, E_{k−2}ᵀ … E_kᵀ)]

with (D₁ … D_n) for such a trace. A word whose S are used up is the trace of a product. Powers of
1/N are counted and N is never put in, so that one table serves all context lengths.
"""

from collections.abc import Iterator
from functools import cache

# A product of matrices: their places, from 1 up, negative where they are transposed.
Product = tuple[int, ...]
Word = tuple[Product, ...]
# How often each product of traces occurs with each power of 1/N.
Counts = dict[tuple[int, tuple[Product, ...]], int]


@cache
def trace_mean(length: int, ordered: bool) -> Counts:
    """E tr(S D₁ … S D_n) as a sum of products of traces of the D's, n = `length`.

    **Arguments:**

    - `ordered`: whether the D's are any matrices; otherwise they are diagonal, so that orders and
      transposes do not matter, and there are few products: set partitions.
    """
    return _mean_of((length,), ordered)


@cache
def _mean_of(lengths: tuple[int, ...], ordered: bool) -> Counts:
    """The mean of a product of such traces, of these lengths, whose places are numbered through."""
    if not lengths:
        return {(0, ()): 1}
    places = iter(range(1, sum(lengths) + 1))
    words = [tuple((next(places),) for _ in range(length)) for length in lengths]
    found: Counts = {}
    for power, left, done in _by_parts(words[0], words[1:], ordered):
        # Sorted by length, so that few tuples of lengths are ever computed.
        left = sorted(left, key=len, reverse=True)
        products = [product for word in left for product in word]
        for (inner, traces), count in _mean_of(tuple(map(len, left)), ordered).items():
            whole = [_fill(trace, products, ordered) for trace in traces] + done
            key = power + inner, tuple(sorted(_canonical(trace, ordered) for trace in whole))
            found[key] = found.get(key, 0) + count
    return found


def _by_parts(
    first: Word, others: list[Word], ordered: bool
) -> Iterator[tuple[int, list[Word], list[Product]]]:
    """The terms of the integration by parts: the power of 1/N, the words left, finished traces."""

    def join(*parts: Product) -> Product:
        joined = sum(parts, ())
        return joined if ordered else tuple(sorted(joined))

    def flip(word: Word) -> Word:
        return tuple(_transpose(product, ordered) for product in reversed(word))

    *start, last = first
    count = len(first)
    if count == 1:
        yield 0, others, [last]
    else:
        yield 0, [(*first[1:-1], join(last, first[0])), *others], []
    for j in range(1, count):  # D_{j+1} of the formula
        turned = flip(first[j:])
        reversed_word = (*first[: j - 1], join(first[j - 1], turned[0]), *turned[1:])
        yield 1, [reversed_word, *others], []
        if j == count - 1:
            yield 1, [first[:j], *others], [last]
        else:
            yield 1, [first[:j], (*first[j + 1 : -1], join(last, first[j])), *others], []
    for i, other in enumerate(others):
        rest = others[:i] + others[i + 1 :]
        for k in range(len(other)):
            for turned in (other[k:] + other[:k], flip(other[k:] + other[:k])):
                yield 1, [(*start, join(last, turned[0]), *turned[1:]), *rest], []


def _transpose(product: Product, ordered: bool) -> Product:
    return tuple(-place for place in reversed(product)) if ordered else product


def _fill(trace: Product, products: list[Product], ordered: bool) -> Product:
    """A product of places, each replaced by what stands there."""
    each = (products[abs(i) - 1] if i > 0 else _transpose(products[-i - 1], ordered) for i in trace)
    return sum(each, ())


def _canonical(trace: Product, ordered: bool) -> Product:
    """One of all the products with the same trace: it may be rotated and transposed."""
    return canonical_cycle(trace, _transpose(trace, True)) if ordered else tuple(sorted(trace))


def canonical_cycle(*cycles: tuple) -> tuple:
    """The least of all rotations of these cycles."""
    return min(cycle[i:] + cycle[:i] for cycle in cycles for i in range(max(1, len(cycle))))
