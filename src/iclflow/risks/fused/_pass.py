"""One pass over the tokens of many sequences: losses and slopes, and no sequence is stored.

A lane is a sequence; every number below is an array over lanes, or one number for all of them, and
every loop over heads and entries is written out when the pass is traced. The same lines run inside
a GPU kernel, where all of this lives in registers, and in a plain compiled program.

With attention weights p_h over tokens z, means m_h = Σ p_h z and overlaps G_hk = Σ p_h p_k, the
loss of a sequence is a function F(m, G). With α_h = ∂F/∂m_h and β = ∂F/∂G its slope in the
vector a_h that scores are products with is

    ∂a_h = Σ p_h (α_h·z + 2 Σ_k β_hk p_k − c_h) z,    c_h = α_h·m_h + 2 Σ_k β_hk G_hk.

If these are few numbers, Σ p_h z zᵀ and Σ p_h p_k z are collected beside m and G, in one pass. If
they are too many to hold, the tokens are made a second time, which costs nothing but arithmetic.
The formulas are derived in docs/theory/softmax.md.
"""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._philox import LENGTHS, PLAIN, Functions, four_normals, philox, uniform
from ._spec import Spec

# The most numbers that a lane may hold to collect everything at once: a thread has 255 registers.
_MOST_HELD = 140
_LOG2E = np.float32(math.log2(math.e))
_NOTHING = np.float32(-1e30)  # the score of padding; an infinite one would make NaN

Lane = Any  # an array over lanes, or a scalar
Rows = list[list[Lane]]  # one row per head


class Numbers(NamedTuple):
    """The numbers of a pass, each read by indexing.

    **Fields:**

    - `key`: two words.
    - `kq`: (H, entries, D), from a white query to scores of white tokens.
    - `ov`: (H, J, D + J), what is read from white tokens.
    - `mean`: (J, D), of the task vectors.
    - `prior`: (J, D) or (J, D, D): their covariance, or its root where they are drawn.
    - `noise`: (J,) variances of label noise, or their roots where it is drawn.
    - `query_noise`: (J,), the root of the variance of the noise of the query's label.
    - `cumulative`: probability that a context is as long as this one of `contexts`, or as one
      before it.
    """

    key: Any
    kq: Any
    ov: Any
    mean: Any
    prior: Any
    noise: Any
    query_noise: Any
    cumulative: Any


class Slopes(NamedTuple):
    """The results of a pass for every lane.

    **Fields:**

    - `loss`: of the sequence.
    - `query`: x_q, D numbers.
    - `scores`: ∂a_h, H × entries.
    - `attended`: m_h, H × entries; empty where no value reads inputs and labels are averaged over.
    - `outputs`: ∂F over each output, J numbers; empty as above.
    - `values`: ∂F over what heads read from labels, H × J × J, where these are averaged over.
    """

    loss: Lane
    query: list
    scores: list
    attended: list
    outputs: list
    values: list

    @staticmethod
    def rows(spec: Spec) -> tuple[int, ...]:
        """How many numbers each field holds."""
        scores, reads = spec.heads * spec.entries, spec.drawn or spec.reads_inputs
        values = 0 if spec.drawn else spec.heads * spec.labels**2
        return 1, spec.dim, scores, scores * reads, spec.labels * reads, values

    def products(self, spec: Spec) -> list[Lane]:
        """The loss, then slopes of the key-query and of the output-value circuit, of each lane."""
        heads, labels, entries = range(spec.heads), range(spec.labels), spec.entries
        found = [self.loss, *(s * q for s in self.scores for q in self.query)]
        for h in heads:
            for i in labels:
                if self.outputs:
                    read = self.attended[h * entries : (h + 1) * entries]
                    found += [self.outputs[i] * m for m in read]
                else:
                    found += [jnp.zeros_like(self.loss)] * spec.dim
                if self.values:
                    place = (h * spec.labels + i) * spec.labels
                    found += self.values[place : place + spec.labels]
        return found

    def flat(self) -> list[Lane]:
        return [self.loss, *self.query, *self.scores, *self.attended, *self.outputs, *self.values]


class _Sequence(NamedTuple):
    """The parts of a sequence that come before its tokens."""

    lane: Array
    query: list
    tasks: list  # J lists of D
    target: list  # J, where drawn
    length: Lane | None  # where it varies
    functions: Functions


class _Sums(NamedTuple):
    """Weighted sums over tokens, all relative to the largest score so far."""

    largest: list  # H
    total: list  # H
    first: list  # H lists
    overlap: dict  # by pair; empty where labels are drawn
    second: list  # H lists: upper triangles of Σ e z zᵀ, or of Σ e (ov_i·z) z
    joint: dict  # by pair: Σ e_h e_k z


def lanes_of(spec: Spec, numbers: Numbers, lane: Array, functions: Functions = PLAIN) -> Slopes:
    """Loss and slopes of the sequences with these numbers, an array of uint32."""
    sequence = _begin(spec, numbers, lane, functions)
    vectors = [
        [_dot([numbers.kq[h, i, d] for d in range(spec.dim)], sequence.query) * _LOG2E
         for i in range(spec.entries)]
        for h in range(spec.heads)
    ]  # fmt: skip
    whole = collects_at_once(spec)
    sums = _normalise(_collect(spec, numbers, sequence, vectors, whole))
    loss, rates, overlap_rates, outputs, values = _loss(spec, numbers, sequence, sums)
    centre = [_dot(rates[h], sums.first[h]) for h in range(spec.heads)]
    if not spec.drawn:
        shared = lambda h: [_pair(sums.overlap, h, k) for k in range(spec.heads)]
        centre = [c + 2 * _dot(overlap_rates[h], shared(h)) for h, c in enumerate(centre)]
    if whole:
        scores = [
            _slope_at_once(spec, sums, h, rates, overlap_rates, outputs, centre)
            for h in range(spec.heads)
        ]
    else:
        parts = sequence, vectors, sums, rates, overlap_rates, centre
        scores = _slope_again(spec, numbers, *parts)
    reads = spec.drawn or spec.reads_inputs
    return Slopes(
        loss,
        sequence.query,
        [entry for row in scores for entry in row],
        [entry for row in sums.first for entry in row] if reads else [],
        outputs if reads else [],
        values,
    )


def collects_at_once(spec: Spec) -> bool:
    """Whether all sums of a lane can be held in one pass."""
    return _sums(spec) <= _MOST_HELD


def _sums(spec: Spec) -> int:
    square = spec.labels * spec.entries if spec.drawn else spec.dim * (spec.dim + 1) // 2
    held = spec.heads * (2 + 2 * spec.entries + square)
    if not spec.drawn:
        held += len(spec.pairs) * (1 + spec.dim)
    return held


def held_of(spec: Spec) -> int:
    """About how many numbers a lane holds at a time: all sums and the vectors of scores; or, if
    tokens are made twice, these vectors, their slopes and the slopes in the means."""
    vectors = spec.heads * spec.entries
    if collects_at_once(spec):
        return _sums(spec) + vectors + spec.slot
    return 3 * vectors + spec.slot


def work_of(spec: Spec) -> int:
    """About how many operations the unrolled pass has."""
    heads, entries, labels = spec.heads, spec.entries, spec.labels
    token = 40 * spec.slot + 6 * heads * entries + 8 * heads
    if not spec.drawn:
        token += heads * heads
    if collects_at_once(spec):
        token += heads * entries * (entries + labels)
    else:
        token *= 2
    prior = 1 if spec.diagonal else spec.dim
    end = labels**2 * spec.dim * (prior + 4 * heads) * (not spec.drawn) + heads * entries * spec.dim
    return spec.group * token + 40 * spec.header + end


def _begin(spec: Spec, numbers: Numbers, lane: Array, functions: Functions) -> _Sequence:
    dim, labels = spec.dim, spec.labels
    normals = []
    for block in range(spec.header_blocks):
        normals += four_normals(philox(_key(numbers), lane, _word(lane, block)), functions)
    query, tasks, target, length = normals[:dim], [], [], None
    for j in range(labels * spec.drawn):
        white = normals[dim * (j + 1) : dim * (j + 2)]
        if spec.diagonal:
            task = [numbers.prior[j, d] * white[d] for d in range(dim)]
        else:
            task = [_dot([numbers.prior[j, d, e] for e in range(dim)], white) for d in range(dim)]
        task = [task[d] + numbers.mean[j, d] for d in range(dim)]
        tasks.append(task)
        noise = numbers.query_noise[j] * normals[dim * (labels + 1) + j]
        target.append(_dot(task, query) + noise)
    if len(spec.contexts) > 1:
        words = philox(_key(numbers), lane, _word(lane, 0), LENGTHS)
        length = length_of(spec, uniform(words[0]), numbers.cumulative)
    return _Sequence(lane, query, tasks, target, length, functions)


def length_of(spec: Spec, share: Array, cumulative: Any) -> Array:
    """The length of a context, from a uniform number."""
    length = jnp.full_like(share, spec.contexts[-1], jnp.int32)
    for place in reversed(range(len(spec.contexts) - 1)):
        length = jnp.where(share <= cumulative[place], np.int32(spec.contexts[place]), length)
    return length


def _tokens(
    spec: Spec, numbers: Numbers, sequence: _Sequence, group: Any
) -> list[tuple[list, Lane]]:
    """The tokens of a group, each with whether the context is as long (None if it is certain)."""
    normals, tokens = [], []
    for block in range(spec.group_blocks):
        place = group * spec.group_blocks + (spec.header_blocks + block)
        words = philox(_key(numbers), sequence.lane, _word(sequence.lane, place))
        normals += four_normals(words, sequence.functions)
    for t in range(spec.group):
        own = normals[t * spec.slot : (t + 1) * spec.slot]
        token = own[: spec.dim]
        for j in range(spec.labels * spec.drawn):
            token = [
                *token,
                _dot(sequence.tasks[j], own[: spec.dim]) + numbers.noise[j] * own[spec.dim + j],
            ]
        there = None
        if sequence.length is not None:
            there = group * spec.group + t < sequence.length
        elif spec.longest % spec.group:
            there = jnp.full(sequence.lane.shape, group * spec.group + t) < spec.longest
        tokens.append((token, there))
    return tokens


def _exponents(spec: Spec, vectors: Rows, token: list[Lane], there: Lane | None) -> list[Lane]:
    """Scores of a token, in powers of two."""
    scores = [_dot(vectors[h], token) for h in range(spec.heads)]
    return scores if there is None else [jnp.where(there, s, _NOTHING) for s in scores]


def _collect(
    spec: Spec, numbers: Numbers, sequence: _Sequence, vectors: Rows, whole: bool
) -> _Sums:
    """One pass. Sums are rescaled group by group, so that no exponential overflows."""

    def body(group: Any, sums: _Sums) -> _Sums:
        tokens = _tokens(spec, numbers, sequence, group)
        scores = [_exponents(spec, vectors, token, there) for token, there in tokens]
        largest = []
        for h in range(spec.heads):
            top = sums.largest[h]
            for row in scores:
                top = jnp.maximum(top, row[h])
            largest.append(top)
        # Powers of two: the scores were multiplied with log₂ e, and exp2 is one instruction.
        shrink = [jnp.exp2(old - new) for old, new in zip(sums.largest, largest)]
        sums = _scale(sums._replace(largest=largest), shrink)
        for (token, _), row in zip(tokens, scores):
            weights = [jnp.exp2(score - top) for score, top in zip(row, largest)]
            sums = _add_token(spec, numbers, sums, token, weights, whole)
        return sums

    zero = jnp.zeros(sequence.lane.shape, jnp.float32)
    heads, entries = range(spec.heads), spec.entries
    triangle = spec.labels * entries if spec.drawn else spec.dim * (spec.dim + 1) // 2
    pairs = () if spec.drawn else spec.pairs
    start = _Sums(
        [zero + _NOTHING for _ in heads],
        [zero for _ in heads],
        [[zero] * entries for _ in heads],
        {pair: zero for pair in pairs},
        [[zero] * (triangle * whole) for _ in heads],
        {pair: [zero] * entries for pair in pairs if whole},
    )
    return jax.lax.fori_loop(0, spec.groups, body, start)


def _add_token(
    spec: Spec,
    numbers: Numbers,
    sums: _Sums,
    token: list[Lane],
    weights: list[Lane],
    whole: bool,
) -> _Sums:
    total = [old + w for old, w in zip(sums.total, weights)]
    weighted = [[w * z for z in token] for w in weights]
    first = [_plus(old, new) for old, new in zip(sums.first, weighted)]
    overlap, second, joint = sums.overlap, sums.second, sums.joint
    if overlap:
        both = {(h, k): weights[h] * weights[k] for h, k in overlap}
        overlap = {pair: overlap[pair] + both[pair] for pair in overlap}
        joint = {pair: [s + both[pair] * z for s, z in zip(joint[pair], token)] for pair in joint}
    if whole and spec.drawn:
        second = []
        for h in range(spec.heads):
            row = []
            for i in range(spec.labels):
                value = _dot([numbers.ov[h, i, a] for a in range(spec.entries)], token)
                row += [value * z for z in weighted[h]]
            second.append(_plus(sums.second[h], row))
    elif whole:
        second = [
            _plus(old, [row[i] * token[j] for i in range(spec.dim) for j in range(i, spec.dim)])
            for old, row in zip(sums.second, weighted)
        ]
    return _Sums(sums.largest, total, first, overlap, second, joint)


def _scale(sums: _Sums, factors: list[Lane]) -> _Sums:
    both = lambda pair: factors[pair[0]] * factors[pair[1]]
    return _Sums(
        sums.largest,
        [f * s for f, s in zip(factors, sums.total)],
        [[f * s for s in row] for f, row in zip(factors, sums.first)],
        {pair: both(pair) * s for pair, s in sums.overlap.items()},
        [[f * s for s in row] for f, row in zip(factors, sums.second)],
        {pair: [both(pair) * s for s in row] for pair, row in sums.joint.items()},
    )


def _normalise(sums: _Sums) -> _Sums:
    """The same as means under the attention weights. (The totals become their inverses.)"""
    inverse = [1 / total for total in sums.total]
    return _scale(sums, inverse)._replace(total=inverse)


def _loss(spec: Spec, numbers: Numbers, sequence: _Sequence, sums: _Sums):
    """F, ∂F/∂m, ∂F/∂G, ∂F over the outputs, and over what heads read from labels."""
    heads, labels, dim = range(spec.heads), range(spec.labels), spec.dim
    ov, m = numbers.ov, sums.first
    if spec.drawn:
        read = lambda h, i: [ov[h, i, a] for a in range(spec.entries)]
        outputs = [
            2 * (_sum(_dot(read(h, i), m[h]) for h in heads) - sequence.target[i]) for i in labels
        ]
        loss = _sum(0.25 * g * g for g in outputs)
        rates = [
            [_sum(outputs[i] * ov[h, i, a] for i in labels) for a in range(spec.entries)]
            for h in heads
        ]
        return loss, rates, [], outputs, []
    inputs = range(dim)
    v = lambda h, i, j: ov[h, i, dim + j]
    r = {
        (i, j): [
            _sum(v(h, i, j) * m[h][d] for h in heads) - (sequence.query[d] if i == j else 0.0)
            for d in inputs
        ]
        for i in labels
        for j in labels
    }
    offset = [_sum(numbers.mean[j, d] * r[i, j][d] for j in labels for d in inputs) for i in labels]
    if spec.reads_inputs:
        offset = [
            offset[i] + _sum(ov[h, i, d] * m[h][d] for h in heads for d in inputs) for i in labels
        ]
    spread, pull = {}, {}
    for (i, j), row in r.items():
        if spec.diagonal:
            spread[i, j] = [numbers.prior[j, d] * row[d] for d in inputs]
        else:
            spread[i, j] = [_dot([numbers.prior[j, d, e] for e in inputs], row) for d in inputs]
        pull[i, j] = [2 * (s + offset[i] * numbers.mean[j, d]) for d, s in enumerate(spread[i, j])]
    noise = [
        [
            _sum(numbers.noise[j] * v(h, i, j) * v(k, i, j) for i in labels for j in labels)
            for k in heads
        ]
        for h in heads
    ]
    loss = _sum(t * t for t in offset) + _sum(_dot(r[key], spread[key]) for key in r)
    for h, k in spec.pairs:
        loss = loss + (1 if h == k else 2) * noise[h][k] * sums.overlap[h, k]
    outputs = [2 * t for t in offset]
    rates = []
    for h in heads:
        row = [_sum(v(h, i, j) * pull[i, j][d] for i in labels for j in labels) for d in inputs]
        if spec.reads_inputs:
            row = [p + _sum(outputs[i] * ov[h, i, d] for i in labels) for d, p in enumerate(row)]
        rates.append(row)
    values = [
        _dot(m[h], pull[i, j])
        + 2 * numbers.noise[j] * _sum(_pair(sums.overlap, h, k) * v(k, i, j) for k in heads)
        for h in heads
        for i in labels
        for j in labels
    ]
    return loss, rates, noise, outputs, values


def _slope_at_once(
    spec: Spec,
    sums: _Sums,
    h: int,
    rates: Rows,
    overlap_rates: Rows,
    outputs: list[Lane],
    centre: list[Lane],
) -> list[Lane]:
    """∂a_h from sums that are all there."""
    entries = range(spec.entries)
    if spec.drawn:
        part = lambda i: sums.second[h][i * spec.entries : (i + 1) * spec.entries]
        pulled = [_sum(outputs[i] * part(i)[a] for i in range(spec.labels)) for a in entries]
    else:
        places = {}
        for i in range(spec.dim):
            for j in range(i, spec.dim):
                places[i, j] = places[j, i] = len(set(places.values()))
        square = sums.second[h]
        pulled = [_sum(square[places[i, j]] * rates[h][j] for j in entries) for i in entries]
        pulled = [
            p + 2 * _sum(overlap_rates[h][k] * _pair(sums.joint, h, k)[a]
                         for k in range(spec.heads))
            for a, p in enumerate(pulled)
        ]  # fmt: skip
    return [p - centre[h] * m for p, m in zip(pulled, sums.first[h])]


def _slope_again(
    spec: Spec,
    numbers: Numbers,
    sequence: _Sequence,
    vectors: Rows,
    sums: _Sums,
    rates: Rows,
    overlap_rates: Rows,
    centre: list[Lane],
) -> Rows:
    """∂a from a second pass over the same tokens."""

    def body(group: Any, slopes: Rows) -> Rows:
        for token, there in _tokens(spec, numbers, sequence, group):
            scores = _exponents(spec, vectors, token, there)
            weights = [
                jnp.exp2(score - top) * inverse
                for score, top, inverse in zip(scores, sums.largest, sums.total)
            ]
            rows = []
            for h in range(spec.heads):
                rate = _dot(rates[h], token) - centre[h]
                if not spec.drawn:
                    rate = rate + 2 * _dot(overlap_rates[h], weights)
                rate = rate * weights[h]
                rows.append([s + rate * z for s, z in zip(slopes[h], token)])
            slopes = rows
        return slopes

    zero = jnp.zeros(sequence.lane.shape, jnp.float32)
    start = [[zero] * spec.entries for _ in range(spec.heads)]
    return jax.lax.fori_loop(0, spec.groups, body, start)


def _key(numbers: Numbers):
    return numbers.key[0], numbers.key[1]


def _word(lane: Array, place: Any) -> Array:
    return jnp.zeros_like(lane) + jnp.asarray(place).astype(jnp.uint32)


def _pair(table: dict, h: int, k: int):
    return table[min(h, k), max(h, k)]


def _plus(old: list, new: list) -> list:
    return [a + b for a, b in zip(old, new)]


def _dot(first: list, second: list) -> Lane:
    return _sum(a * b for a, b in zip(first, second))


def _sum(terms: Iterable[Lane]) -> Lane:
    first, *rest = terms
    for term in rest:
        first = first + term
    return first
