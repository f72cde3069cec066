"""The fused pass on a CPU: sequences as lanes of vector instructions, compiled by Numba.

XLA computes what several sums share anew for each of them, which makes a pass like this one many
times as slow. Here the tokens of a few sequences are made once, stay in the nearest caches while
they are used, and are gone. One compiled function serves every shape: each loop over lanes is
innermost and of a length that the compiler knows, and sums are gathered eight products at a time.

The arithmetic is that of `_pass.py`; what is shared with it is the place of every random number.
Arrays are rows of lanes, and what has two indices on paper is a block of rows.
"""

import numba as nb
import numpy as np
from numba import carray  # pyright: ignore[reportPrivateImportUsage]

from ._numba_compiled import compiled, handler, on_all_cores
from ._numba_frame import argument, is_question, result
from ._numba_functions import LANES, exponentials, fill_normals, fill_words, uniform_of

# Where each of the numbers of `_ffi.sizes_of` stands.
DIM, HEADS, LABELS, DRAWN, READS, DIAGONAL, SLOT, MEMBERS, BATCH, LENGTHS, LONGEST = range(11)
# Sequences that one core takes at a time. (Another number would be another order of sums.)
PART = LANES
f32 = np.float32


@compiled
def _fill(row, value):
    for lane in range(LANES):
        row[lane] = value


@compiled
def _gather(out, a, a_at, a_step, b, b_at, b_step, count):
    """out += Σ a·b over `count` pairs of rows, from `a_at` and `b_at` in steps."""
    n = 0
    while n + 8 <= count:
        i, j = a_at + n * a_step, b_at + n * b_step
        a0, a1, a2, a3 = a[i], a[i + a_step], a[i + 2 * a_step], a[i + 3 * a_step]
        b0, b1, b2, b3 = b[j], b[j + b_step], b[j + 2 * b_step], b[j + 3 * b_step]
        i, j = i + 4 * a_step, j + 4 * b_step
        a4, a5, a6, a7 = a[i], a[i + a_step], a[i + 2 * a_step], a[i + 3 * a_step]
        b4, b5, b6, b7 = b[j], b[j + b_step], b[j + 2 * b_step], b[j + 3 * b_step]
        for lane in range(LANES):
            first = a0[lane] * b0[lane] + a1[lane] * b1[lane]
            first += a2[lane] * b2[lane] + a3[lane] * b3[lane]
            second = a4[lane] * b4[lane] + a5[lane] * b5[lane]
            second += a6[lane] * b6[lane] + a7[lane] * b7[lane]
            out[lane] += first + second
        n += 8
    while n + 2 <= count:
        a0, a1 = a[a_at + n * a_step], a[a_at + (n + 1) * a_step]
        b0, b1 = b[b_at + n * b_step], b[b_at + (n + 1) * b_step]
        for lane in range(LANES):
            out[lane] += a0[lane] * b0[lane] + a1[lane] * b1[lane]
        n += 2
    if n < count:
        a0, b0 = a[a_at + n * a_step], b[b_at + n * b_step]
        for lane in range(LANES):
            out[lane] += a0[lane] * b0[lane]


@compiled
def _gather_scaled(out, numbers, at, step, b, b_at, b_step, count):
    """out += Σ number·b over rows of `b`."""
    for n in range(count):
        number, row = numbers[at + n * step], b[b_at + n * b_step]
        for lane in range(LANES):
            out[lane] += number * row[lane]


@compiled
def _total(a, b):
    """Σ a·b over lanes."""
    total = f32(0.0)
    for lane in range(LANES):
        total += a[lane] * b[lane]
    return total


@compiled
def _draw(sizes, key, first, law, z, x, task, target, length):
    """Fills the query and all else that a sequence begins with (`z`), its tokens (`x`), and, where
    labels are drawn, its targets."""
    dim, labels, drawn, diagonal, slot = (
        sizes[DIM],
        sizes[LABELS],
        sizes[DRAWN],
        sizes[DIAGONAL],
        sizes[SLOT],
    )
    contexts, mean, prior, noise, query_noise, cumulative = law
    longest = sizes[LONGEST]
    header = (dim + drawn * labels * (dim + 1) + 3) // 4
    words = np.empty((4, LANES), np.uint32)
    for block in range(header):
        fill_words(words, key[0], key[1], first, block, 0)
        fill_normals(z, 4 * block, words)
    for block in range((longest * slot + 3) // 4):
        fill_words(words, key[0], key[1], first, header + block, 0)
        fill_normals(x, 4 * block, words)
    _fill(length, f32(longest))
    if len(contexts) > 1:
        fill_words(words, key[0], key[1], first, 0, 1)
        for lane in range(LANES):
            share = uniform_of(words[0, lane])
            found = contexts[len(contexts) - 1]
            for place in range(len(contexts) - 2, -1, -1):
                if share <= cumulative[place]:
                    found = contexts[place]
            length[lane] = f32(found)
    for j in range(labels * drawn):
        for d in range(dim):
            w = task[j * dim + d]
            _fill(w, mean[j * dim + d])
            if diagonal:
                _gather_scaled(w, prior, j * dim + d, 1, z, dim * (j + 1) + d, 1, 1)
            else:
                _gather_scaled(w, prior, (j * dim + d) * dim, 1, z, dim * (j + 1), 1, dim)
        _fill(target[j], f32(0.0))
        _gather_scaled(target[j], query_noise, j, 1, z, dim * (labels + 1) + j, 1, 1)
        _gather(target[j], task, j * dim, 1, z, 0, 1, dim)
        for n in range(longest):
            y = x[n * slot + dim + j]
            for lane in range(LANES):
                y[lane] *= noise[j]
            _gather(y, task, j * dim, 1, x, n * slot, 1, dim)


@compiled
def _token_sizes(sizes):
    """What a loop over tokens counts with."""
    return sizes[DIM], sizes[HEADS], sizes[LABELS], sizes[DRAWN], sizes[SLOT]


@compiled
def _attend(sizes, kq, longest, length, z, x, vector, p, m, overlap):
    """Attention weights `p`, attended means `m` and, where labels are averaged over, overlaps."""
    dim, heads, labels, drawn, slot = _token_sizes(sizes)
    entries = dim + labels * drawn
    largest = np.empty(LANES, np.float32)
    total = np.empty(LANES, np.float32)
    for h in range(heads):
        for i in range(entries):
            _fill(vector[i], f32(0.0))
            _gather_scaled(vector[i], kq, (h * entries + i) * dim, 1, z, 0, 1, dim)
        _fill(largest, f32(-1e30))
        for n in range(longest):
            s = p[h * longest + n]
            _fill(s, f32(0.0))
            _gather(s, vector, 0, 1, x, n * slot, 1, entries)
            for lane in range(LANES):
                s[lane] = s[lane] if f32(n) < length[lane] else f32(-1e30)
                largest[lane] = max(largest[lane], s[lane])
        _fill(total, f32(0.0))
        for n in range(longest):
            s = p[h * longest + n]
            exponentials(s, largest)
            for lane in range(LANES):
                s[lane] = s[lane] if f32(n) < length[lane] else f32(0.0)
                total[lane] += s[lane]
        for lane in range(LANES):
            total[lane] = f32(1.0) / total[lane]
        for n in range(longest):
            s = p[h * longest + n]
            for lane in range(LANES):
                s[lane] *= total[lane]
        for i in range(entries):
            _fill(m[h * entries + i], f32(0.0))
            _gather(m[h * entries + i], p, h * longest, 1, x, i, slot, longest)
    if not drawn:
        for h in range(heads):
            for k in range(h, heads):
                row = overlap[h * heads + k]
                _fill(row, f32(0.0))
                _gather(row, p, h * longest, 1, p, k * longest, 1, longest)
                other = overlap[k * heads + h]
                for lane in range(LANES):
                    other[lane] = row[lane]


@compiled
def _drawn_loss(sizes, ov, target, valid, m, loss, rates, outputs):
    """Squared errors, and their slopes in the outputs and in the attended means."""
    dim, heads, labels = sizes[DIM], sizes[HEADS], sizes[LABELS]
    token = dim + labels
    for i in range(labels):
        error = outputs[i]
        for lane in range(LANES):
            error[lane] = -target[i, lane]
        for h in range(heads):
            _gather_scaled(error, ov, (h * labels + i) * token, 1, m, h * token, 1, token)
        for lane in range(LANES):
            loss[lane] += error[lane] * error[lane]
            error[lane] = f32(2.0) * error[lane] * valid[lane]
        for h in range(heads):
            for e in range(token):
                _gather_scaled(
                    rates[h * token + e], ov, (h * labels + i) * token + e, 1, outputs, i, 1, 1
                )


@compiled
def _averaged_loss(sizes, ov, law, valid, z, m, overlap, loss, rates, outputs, out):
    """The same with labels averaged over; what heads read from labels has its slopes in `out`."""
    dim, heads, labels = sizes[DIM], sizes[HEADS], sizes[LABELS]
    reads, diagonal = sizes[READS], sizes[DIAGONAL]
    token = dim + labels
    _, mean, prior, noise, _, _ = law
    r = np.empty((dim, LANES), np.float32)
    pull = np.empty((dim, LANES), np.float32)
    for i in range(labels):
        offset = outputs[i]
        _fill(offset, f32(0.0))
        for h in range(heads * reads):
            _gather_scaled(offset, ov, (h * labels + i) * token, 1, m, h * dim, 1, dim)
        for j in range(labels):
            _residual(sizes, ov, i, j, z, m, r)
            _gather_scaled(offset, mean, j * dim, 1, r, 0, 1, dim)
        for lane in range(LANES):
            loss[lane] += offset[lane] * offset[lane]
            offset[lane] = f32(2.0) * offset[lane] * valid[lane]
        for h in range(heads * reads):
            for d in range(dim):
                _gather_scaled(
                    rates[h * dim + d], ov, (h * labels + i) * token + d, 1, outputs, i, 1, 1
                )
        for j in range(labels):
            _residual(sizes, ov, i, j, z, m, r)
            for d in range(dim):
                row = pull[d]
                _fill(row, f32(0.0))
                if diagonal:
                    _gather_scaled(row, prior, j * dim + d, 1, r, d, 1, 1)
                else:
                    _gather_scaled(row, prior, (j * dim + d) * dim, 1, r, 0, 1, dim)
                for lane in range(LANES):
                    loss[lane] += row[lane] * r[d, lane]
                    row[lane] = f32(2.0) * row[lane] * valid[lane]
                _gather_scaled(row, mean, j * dim + d, 1, outputs, i, 1, 1)
            for h in range(heads):
                place = (h * labels + i) * token + dim + j
                slope = f32(0.0)
                for d in range(dim):
                    slope += _total(m[h * dim + d], pull[d])
                    _gather_scaled(rates[h * dim + d], ov, place, 1, pull, d, 1, 1)
                for k in range(heads):
                    other = noise[j] * ov[(k * labels + i) * token + dim + j]
                    slope += f32(2.0) * other * _total(overlap[h * heads + k], valid)
                    share = ov[place] * other
                    for lane in range(LANES):
                        loss[lane] += share * overlap[h * heads + k, lane]
                out[place] += slope


@compiled
def _residual(sizes, ov, i, j, z, m, r):
    """r = Σ_h v_hij m_h, less the query where i = j."""
    dim, heads, labels = sizes[DIM], sizes[HEADS], sizes[LABELS]
    token = dim + labels
    for d in range(dim):
        for lane in range(LANES):
            r[d, lane] = -z[d, lane] if i == j else f32(0.0)
        _gather_scaled(r[d], ov, i * token + dim + j, labels * token, m, d, dim, heads)


@compiled
def _score_slopes(sizes, ov, noise, longest, valid, z, x, p, m, overlap, rates, rate, out):
    """Adds the slopes of the key-query circuit to `out`."""
    dim, heads, labels, drawn, slot = _token_sizes(sizes)
    entries, token = dim + labels * drawn, dim + labels
    centre = np.empty(LANES, np.float32)
    slope = np.empty(LANES, np.float32)
    both = np.empty((heads, LANES), np.float32)
    for h in range(heads):
        _fill(centre, f32(0.0))
        _gather(centre, rates, h * entries, 1, m, h * entries, 1, entries)
        for k in range(heads * (1 - drawn)):
            total = f32(0.0)
            for i in range(labels):
                for j in range(labels):
                    own = ov[(h * labels + i) * token + dim + j]
                    total += noise[j] * own * ov[(k * labels + i) * token + dim + j]
            for lane in range(LANES):
                both[k, lane] = f32(2.0) * total * valid[lane]
        if not drawn:
            _gather(centre, both, 0, 1, overlap, h * heads, 1, heads)
        for n in range(longest):
            row = rate[n]
            for lane in range(LANES):
                row[lane] = -centre[lane]
            _gather(row, rates, h * entries, 1, x, n * slot, 1, entries)
            if not drawn:
                _gather(row, both, 0, 1, p, n, longest, heads)
            weight = p[h * longest + n]
            for lane in range(LANES):
                row[lane] *= weight[lane]
        for i in range(entries):
            _fill(slope, f32(0.0))
            _gather(slope, rate, 0, 1, x, i, slot, longest)
            for d in range(dim):
                out[(h * entries + i) * dim + d] += _total(slope, z[d])


@compiled
def _whole(sizes, first, stop, key, kq, ov, law, out):
    """Sums over the sequences from `first` to `stop`: the loss, then slopes of both circuits."""
    dim, heads, labels, drawn, reads = (
        sizes[DIM],
        sizes[HEADS],
        sizes[LABELS],
        sizes[DRAWN],
        sizes[READS],
    )
    entries, token, slot = dim + labels * drawn, dim + labels, sizes[SLOT]
    noise = law[3]
    longest = sizes[LONGEST]
    z = np.empty((dim + drawn * labels * (dim + 1) + 3, LANES), np.float32)
    x = np.empty((longest * slot + 3, LANES), np.float32)
    p = np.empty((heads * longest, LANES), np.float32)
    rate = np.empty((longest, LANES), np.float32)
    task = np.empty((labels * dim, LANES), np.float32)
    target = np.empty((labels, LANES), np.float32)
    outputs = np.empty((labels, LANES), np.float32)
    vector = np.empty((entries, LANES), np.float32)
    m = np.empty((heads * entries, LANES), np.float32)
    rates = np.empty((heads * entries, LANES), np.float32)
    overlap = np.empty((heads * heads, LANES), np.float32)
    length, valid = np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    loss = np.empty(LANES, np.float32)
    out_kq, out_ov = out[1 : 1 + kq.size], out[1 + kq.size :]
    for place in range(out.size):
        out[place] = f32(0.0)
    for lanes in range(first, stop, LANES):
        for lane in range(LANES):
            valid[lane] = f32(1.0) if lanes + lane < stop else f32(0.0)
        _draw(sizes, key, lanes, law, z, x, task, target, length)
        _attend(sizes, kq, longest, length, z, x, vector, p, m, overlap)
        _fill(loss, f32(0.0))
        for row in range(heads * entries):
            _fill(rates[row], f32(0.0))
        if drawn:
            _drawn_loss(sizes, ov, target, valid, m, loss, rates, outputs)
        else:
            _averaged_loss(sizes, ov, law, valid, z, m, overlap, loss, rates, outputs, out_ov)
        out[0] += _total(loss, valid)
        if drawn or reads:
            for h in range(heads):
                for i in range(labels):
                    for e in range(entries):
                        place = (h * labels + i) * token + e
                        out_ov[place] += _total(outputs[i], m[h * entries + e])
        _score_slopes(sizes, ov, noise, longest, valid, z, x, p, m, overlap, rates, rate, out_kq)


@on_all_cores
def _members(sizes, contexts, keys, kq, ov, mean, prior, noise, query_noise, cumulative, out):
    """Every model in parts, one after the other or on several cores.

    The parts are the same whatever the number of cores, so that the sums are the same to the bit.
    """
    members, batch = sizes[MEMBERS], sizes[BATCH]
    parts = (batch + PART - 1) // PART
    sums = np.empty((members * parts, out.shape[1]), np.float32)
    for task in nb.prange(members * parts):
        i, part = task // parts, task % parts
        law = contexts, mean[i], prior[i], noise[i], query_noise[i], cumulative[i]
        stop = min(batch, (part + 1) * PART)
        _whole(sizes, part * PART, stop, keys[i], kq[i], ov[i], law, sums[task])
    for i in range(members):
        for place in range(out.shape[1]):
            total = f32(0.0)
            for part in range(parts):
                total += sums[i * parts + part, place]
            out[i, place] = total


@handler
def fused_pass(address):
    """What XLA calls, with the arguments of `_ffi.py`; 0 says that all is well."""
    frame = carray(address, 15)
    if is_question(frame):
        return 0
    # As the loops count: with whole numbers of two kinds everything would be compiled for each.
    sizes = carray(argument(frame, 0), LONGEST + 1, np.int32).astype(np.int64)
    dim, heads, labels, drawn, members = (
        sizes[DIM],
        sizes[HEADS],
        sizes[LABELS],
        sizes[DRAWN],
        sizes[MEMBERS],
    )
    entries, token = dim + labels * drawn, dim + labels
    square = 1 if sizes[DIAGONAL] else dim
    lengths = sizes[LENGTHS]
    numbers = 1 + heads * (entries * dim + labels * token)
    _members(
        sizes,
        carray(argument(frame, 1), lengths, np.int32),
        carray(argument(frame, 2), (members, 2), np.uint32),
        carray(argument(frame, 3), (members, heads * entries * dim), np.float32),
        carray(argument(frame, 4), (members, heads * labels * token), np.float32),
        carray(argument(frame, 5), (members, labels * dim), np.float32),
        carray(argument(frame, 6), (members, labels * dim * square), np.float32),
        carray(argument(frame, 7), (members, labels), np.float32),
        carray(argument(frame, 8), (members, labels), np.float32),
        carray(argument(frame, 9), (members, lengths), np.float32),
        carray(result(frame), (members, numbers), np.float32),
    )
    return 0
