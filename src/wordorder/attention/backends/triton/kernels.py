"""Triton kernels of attention with a bias that learns: forward, and four for the gradients.

One program computes the output of a block of queries of one head, or the gradients of a block of queries or keys, over
all blocks of the other side that the mask lets it see (FlashAttention-2, Dao 2023, https://arxiv.org/abs/2307.08691)::

    s[i, j] = scale q_i . k_j  +  a_i . c_j  +  table[j - i + T - 1]  +  dense[i, j]          -inf where hidden
    p = softmax(s),  o = p v,  lse = log sum exp s
    ds = p (dp - delta),  dp = do v',  delta = rowsum(do o) - dlse
    dq = scale ds k,  dk = scale ds' q,  dv = p' do,  da = ds c,  dc = ds' a,  dtable[m] = sum of ds over j - i = m

Scores are kept in units of log 2, so that exp2 does: `a`, `table` and the lse come multiplied by log2(e). Axes: B
examples, H heads of queries, G heads of keys, T queries, S keys, D and E channels. Loaded only where it is used, since
it needs Triton.
"""

# Triton has no stubs, and its functions are compiled from their source
# pyright: basic, reportMissingImports=false, reportUntypedFunctionDecorator=false, reportIndexIssue=false
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportOperatorIssue=false
# pyright: reportGeneralTypeIssues=false

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _blocks_seen(
    first, low, high, start, stop, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    LOW: tl.constexpr, HIGH: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Return the blocks of the other side that rows first .. first + ROWS - 1 see: all of them, and those seen whole.

    Row i sees column j where low <= j - i <= high, and start <= j < stop; with MASKED no block is seen whole.
    """
    whole, end = start, stop
    if LOW:
        start = tl.maximum(start, first + low)
        whole = tl.maximum(whole, first + ROWS - 1 + low)
    if HIGH:
        stop = tl.minimum(stop, first + ROWS + high)
        end = tl.minimum(end, first + high + 1)
    begin = start // BLOCK
    last = tl.maximum(begin, tl.cdiv(tl.maximum(stop, 0), BLOCK))
    if MASKED:
        whole_begin, whole_last = begin, begin
    else:
        whole_begin = tl.minimum(tl.cdiv(whole, BLOCK), last)
        whole_last = tl.minimum(tl.maximum(tl.maximum(end, 0) // BLOCK, whole_begin), last)
    return begin, last, whole_begin, whole_last


@triton.jit
def _bias_and_mask(
    s, m, n, queries, keys, table, dense, dense_t, low, high,
    valid, q_positions, k_positions, q_ids, k_ids, mask, mask_t, mask_s,
    TABLE: tl.constexpr, DENSE: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, VALID: tl.constexpr,
    POSITIONS: tl.constexpr, IDS: tl.constexpr, MASK: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Add table and dense part to a tile of scores, -inf where hidden; queries m and keys n broadcast to the tile."""
    inside = (m < queries) & (n < keys)
    if TABLE:
        s += tl.load(table + (n - m + (queries - 1)), mask=inside, other=0.0)
    if DENSE:
        s += tl.load(dense + m.to(tl.int64) * dense_t + n, mask=inside, other=0.0).to(tl.float32) * LOG2_E
    if MASKED:
        visible = inside
        distance = n - m
        if POSITIONS:
            behind = tl.load(k_positions + n, mask=n < keys, other=0)
            distance = behind - tl.load(q_positions + m, mask=m < queries, other=0)
        if LOW:
            visible = visible & (distance >= low)
        if HIGH:
            visible = visible & (distance <= high)
        if VALID:
            visible = visible & (tl.load(valid + n, mask=n < keys, other=0) != 0)
        if IDS:
            own = tl.load(q_ids + m, mask=m < queries, other=-1)
            visible = visible & (own == tl.load(k_ids + n, mask=n < keys, other=-2))
        if MASK:
            at = mask + m.to(tl.int64) * mask_t + n.to(tl.int64) * mask_s
            visible = visible & (tl.load(at, mask=inside, other=0) != 0)
        s = tl.where(visible, s, float("-inf"))
    return s


@triton.jit
def _kept(seed, head, m, n, keys, dropout):
    """Return the weights that dropout keeps: a function of seed, example, head, query and key alone."""
    return tl.rand(tl.load(seed) + head, m * keys + n) >= dropout


@triton.jit
def _rows(pointer, stride, rows, end, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Load rows of a matrix with WIDTH columns as BLOCK columns; 0 outside."""
    column = tl.arange(0, BLOCK)
    inside = rows[:, None] < end
    if WIDTH != BLOCK:
        inside = inside & (column[None, :] < WIDTH)
    return tl.load(pointer + rows[:, None].to(tl.int64) * stride + column[None, :], mask=inside, other=0.0)


@triton.jit
def _store_rows(pointer, stride, rows, end, block, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Store BLOCK columns as rows of a matrix with WIDTH columns."""
    column = tl.arange(0, BLOCK)
    inside = (rows[:, None] < end) & (column[None, :] < WIDTH)
    at = pointer + rows[:, None].to(tl.int64) * stride + column[None, :]
    tl.store(at, block.to(pointer.dtype.element_ty), mask=inside)


@triton.jit
def forward(
    o, lse, q, k, v, a, c, table, dense, valid, bounds, shift, q_positions, k_positions, q_ids, k_ids, id_blocks,
    mask, seed,
    q_b, q_h, q_t, k_b, k_h, k_s, v_b, v_h, v_s, o_b, o_h, o_t, a_b, a_h, c_b, c_h, table_h, dense_b, dense_h, dense_t,
    valid_b, q_positions_b, k_positions_b, q_ids_b, k_ids_b, mask_b, mask_h, mask_t, mask_s,
    heads, groups, queries, keys, scale, low, high, dropout,
    D: tl.constexpr, E: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr, RANK: tl.constexpr,
    REST: tl.constexpr, TABLE: tl.constexpr, DENSE: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    VALID: tl.constexpr, SHIFT: tl.constexpr, POSITIONS: tl.constexpr, IDS: tl.constexpr, MASK: tl.constexpr,
    DROPOUT: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Write the output and the natural log-sum-exp of one block of queries."""
    block = tl.program_id(0)
    head = tl.program_id(2) * heads + tl.program_id(1)
    example = tl.program_id(2).to(tl.int64)
    h = tl.program_id(1).to(tl.int64)
    first = block * ROWS
    m = first + tl.arange(0, ROWS)
    q += example * q_b + h * q_h
    k += example * k_b + (h // groups) * k_h
    v += example * v_b + (h // groups) * v_h
    a += example * a_b + h * a_h
    c += example * c_b + h * c_h
    table += h * table_h
    dense += example * dense_b + h * dense_h
    mask += example * mask_b + h * mask_h
    valid += example * valid_b
    q_positions += example * q_positions_b
    k_positions += example * k_positions_b
    q_ids += example * q_ids_b
    k_ids += example * k_ids_b
    start = tl.full((), 0, tl.int32)
    stop = keys
    if VALID:
        start = tl.load(bounds + 2 * example)
        stop = tl.load(bounds + 2 * example + 1)
    if IDS:
        ends = id_blocks + 2 * (example * tl.num_programs(0) + block)
        start = tl.maximum(start, tl.load(ends) * KEYS)
        stop = tl.minimum(stop, tl.load(ends + 1) * KEYS)
    if SHIFT:
        moved = tl.load(shift + example)
        low -= moved
        high -= moved
    begin, last, whole, end = _blocks_seen(
        first, low, high, start, stop, ROWS, KEYS, LOW and not POSITIONS, HIGH and not POSITIONS,
        VALID or POSITIONS or IDS or MASK,
    )  # fmt: skip

    own_q = _rows(q, q_t, m, queries, D, BLOCK_D)
    if RANK:
        own_a = _rows(a, RANK + REST, m, queries, RANK, RANK)
    if REST:
        own_rest = _rows(a + RANK, RANK + REST, m, queries, REST, REST)
    highest = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, BLOCK_E), tl.float32)
    for part in tl.static_range(2):  # blocks that are seen whole, then those on either side of them
        count = end - whole if part == 0 else (whole - begin) + (last - end)
        for index in range(0, count):
            if part == 0:
                at = whole + index
            else:
                at = tl.where(index < whole - begin, begin + index, end + index - (whole - begin))
            n = at * KEYS + tl.arange(0, KEYS)
            s = tl.dot(own_q, tl.trans(_rows(k, k_s, n, keys, D, BLOCK_D)), input_precision="ieee")
            s *= scale * LOG2_E
            if RANK:
                s = tl.dot(own_a, tl.trans(_rows(c, RANK + REST, n, keys, RANK, RANK)), s, input_precision="ieee")
            if REST:
                other = _rows(c + RANK, RANK + REST, n, keys, REST, REST)
                s = tl.dot(own_rest, tl.trans(other), s, input_precision="ieee")
            s = _bias_and_mask(
                s, m[:, None], n[None, :], queries, keys, table, dense, dense_t, low, high,
                valid, q_positions, k_positions, q_ids, k_ids, mask, mask_t, mask_s,
                TABLE, DENSE, LOW, HIGH, VALID, POSITIONS, IDS, MASK, part == 1,
            )  # fmt: skip
            new = tl.maximum(highest, tl.max(s, 1))
            base = tl.where(new == float("-inf"), 0.0, new)  # a row that has seen nothing yet
            p = tl.exp2(s - base[:, None])
            shrink = tl.exp2(highest - base)
            total = total * shrink + tl.sum(p, 1)
            if DROPOUT:
                p = tl.where(_kept(seed, head, m[:, None], n[None, :], keys, dropout), p, 0.0)
            values = _rows(v, v_s, n, keys, E, BLOCK_E)
            mixed = tl.dot(p.to(values.dtype), values, mixed * shrink[:, None], input_precision="ieee")
            highest = new
    blind = total == 0.0
    total = tl.where(blind, 1.0, total)
    if DROPOUT:
        mixed *= 1.0 / (1.0 - dropout)
    _store_rows(o + example * o_b + h * o_h, o_t, m, queries, mixed / total[:, None], E, BLOCK_E)
    found = tl.where(blind, float("-inf"), (highest + tl.log2(total)) * LN_2)
    tl.store(lse + head.to(tl.int64) * queries + m, found, mask=m < queries)


@triton.jit
def row_sums(
    delta, o, do, o_b, o_h, o_t, heads, queries,
    E: tl.constexpr, BLOCK_E: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Write delta = rowsum(do o) of one block of queries."""
    head = tl.program_id(2) * heads + tl.program_id(1)
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    offset = tl.program_id(2).to(tl.int64) * o_b + tl.program_id(1).to(tl.int64) * o_h
    products = _rows(o + offset, o_t, m, queries, E, BLOCK_E).to(tl.float32)
    products *= _rows(do + offset, o_t, m, queries, E, BLOCK_E).to(tl.float32)
    tl.store(delta + head.to(tl.int64) * queries + m, tl.sum(products, 1), mask=m < queries)


@triton.jit
def _add_diagonals(table, ds, first, n0, queries, keys, ROWS: tl.constexpr, KEYS: tl.constexpr):
    """Add the sums over the diagonals of a tile to the table: columns rotated by their row, then one sum per column.

    After the rotation column x holds the elements whose j - i is x, x - KEYS, x - 2 KEYS, ...: one addition to memory
    for each of them instead of one for each element.
    """
    i = tl.arange(0, ROWS)[:, None]
    x = tl.arange(0, KEYS)
    rotated = tl.gather(ds, (x[None, :] + i) % KEYS, 1)
    turn = (x[None, :] + i) // KEYS
    for number in tl.static_range(0, (ROWS + KEYS - 2) // KEYS + 1):
        sums = tl.sum(tl.where(turn == number, rotated, 0.0), 0)
        at = n0 - first + x - number * KEYS + queries - 1
        tl.atomic_add(table + at, sums, mask=(at >= 0) & (at < queries + keys - 1), sem="relaxed")


@triton.jit
def query_gradients(
    dq, da, dtable, q, k, v, a, c, table, dense, valid, bounds, shift, q_positions, k_positions, q_ids, k_ids,
    id_blocks, mask, seed, do, lse, delta,
    q_b, q_h, q_t, k_b, k_h, k_s, v_b, v_h, v_s, o_b, o_h, o_t, a_b, a_h, c_b, c_h, table_h, dense_b, dense_h, dense_t,
    valid_b, q_positions_b, k_positions_b, q_ids_b, k_ids_b, mask_b, mask_h, mask_t, mask_s,
    dq_b, dq_h, dq_t, dtable_b, dtable_h, dtable_m,
    heads, groups, queries, keys, scale, low, high, dropout,
    D: tl.constexpr, E: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr, RANK: tl.constexpr,
    REST: tl.constexpr, TABLE: tl.constexpr, DENSE: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    VALID: tl.constexpr, SHIFT: tl.constexpr, POSITIONS: tl.constexpr, IDS: tl.constexpr, MASK: tl.constexpr,
    DROPOUT: tl.constexpr, WANT_QUERIES: tl.constexpr, WANT_FACTORS: tl.constexpr, WANT_TABLE: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Write the gradients of one block of queries and of its factors, and add its part to that of the table."""
    block = tl.program_id(0)
    head = tl.program_id(2) * heads + tl.program_id(1)
    example = tl.program_id(2).to(tl.int64)
    h = tl.program_id(1).to(tl.int64)
    first = block * ROWS
    m = first + tl.arange(0, ROWS)
    q += example * q_b + h * q_h
    k += example * k_b + (h // groups) * k_h
    v += example * v_b + (h // groups) * v_h
    a += example * a_b + h * a_h
    c += example * c_b + h * c_h
    table += h * table_h
    dense += example * dense_b + h * dense_h
    mask += example * mask_b + h * mask_h
    valid += example * valid_b
    q_positions += example * q_positions_b
    k_positions += example * k_positions_b
    q_ids += example * q_ids_b
    k_ids += example * k_ids_b
    dtable += example * dtable_b + h * dtable_h + block.to(tl.int64) * dtable_m
    start = tl.full((), 0, tl.int32)
    stop = keys
    if VALID:
        start = tl.load(bounds + 2 * example)
        stop = tl.load(bounds + 2 * example + 1)
    if IDS:
        ends = id_blocks + 2 * (example * tl.num_programs(0) + block)
        start = tl.maximum(start, tl.load(ends) * KEYS)
        stop = tl.minimum(stop, tl.load(ends + 1) * KEYS)
    if SHIFT:
        moved = tl.load(shift + example)
        low -= moved
        high -= moved
    begin, last, whole, end = _blocks_seen(
        first, low, high, start, stop, ROWS, KEYS, LOW and not POSITIONS, HIGH and not POSITIONS,
        VALID or POSITIONS or IDS or MASK,
    )  # fmt: skip

    own_q = _rows(q, q_t, m, queries, D, BLOCK_D)
    own_do = _rows(do + example * o_b + h * o_h, o_t, m, queries, E, BLOCK_E)
    if RANK:
        own_a = _rows(a, RANK + REST, m, queries, RANK, RANK)
    if REST:
        own_rest = _rows(a + RANK, RANK + REST, m, queries, REST, REST)
    row = head.to(tl.int64) * queries + m
    own_lse = tl.load(lse + row, mask=m < queries, other=float("inf")) * LOG2_E
    own_lse = tl.where(own_lse == float("-inf"), float("inf"), own_lse)  # rows that see nothing have weights 0
    own_delta = tl.load(delta + row, mask=m < queries, other=0.0)
    if WANT_QUERIES:
        to_q = tl.zeros((ROWS, BLOCK_D), tl.float32)
    if RANK and WANT_FACTORS:
        to_a = tl.zeros((ROWS, RANK), tl.float32)
    if REST and WANT_FACTORS:
        to_rest = tl.zeros((ROWS, REST), tl.float32)
    for part in tl.static_range(2):
        count = end - whole if part == 0 else (whole - begin) + (last - end)
        for index in range(0, count):
            if part == 0:
                at = whole + index
            else:
                at = tl.where(index < whole - begin, begin + index, end + index - (whole - begin))
            n = at * KEYS + tl.arange(0, KEYS)
            its_k = _rows(k, k_s, n, keys, D, BLOCK_D)
            s = tl.dot(own_q, tl.trans(its_k), input_precision="ieee") * (scale * LOG2_E)
            if RANK:
                its_c = _rows(c, RANK + REST, n, keys, RANK, RANK)
                s = tl.dot(own_a, tl.trans(its_c), s, input_precision="ieee")
            if REST:
                its_rest = _rows(c + RANK, RANK + REST, n, keys, REST, REST)
                s = tl.dot(own_rest, tl.trans(its_rest), s, input_precision="ieee")
            s = _bias_and_mask(
                s, m[:, None], n[None, :], queries, keys, table, dense, dense_t, low, high,
                valid, q_positions, k_positions, q_ids, k_ids, mask, mask_t, mask_s,
                TABLE, DENSE, LOW, HIGH, VALID, POSITIONS, IDS, MASK, part == 1,
            )  # fmt: skip
            p = tl.exp2(s - own_lse[:, None])
            dp = tl.dot(own_do, tl.trans(_rows(v, v_s, n, keys, E, BLOCK_E)), input_precision="ieee")
            if DROPOUT:
                kept = _kept(seed, head, m[:, None], n[None, :], keys, dropout)
                dp = tl.where(kept, dp * (1.0 / (1.0 - dropout)), 0.0)
            ds = p * (dp - own_delta[:, None])
            if WANT_TABLE:
                _add_diagonals(dtable, ds, first, at * KEYS, queries, keys, ROWS, KEYS)
            ds = ds.to(its_k.dtype)
            if WANT_QUERIES:
                to_q = tl.dot(ds, its_k, to_q, input_precision="ieee")
            if RANK and WANT_FACTORS:
                to_a = tl.dot(ds, its_c, to_a, input_precision="ieee")
            if REST and WANT_FACTORS:
                to_rest = tl.dot(ds, its_rest, to_rest, input_precision="ieee")
    if WANT_QUERIES:
        _store_rows(dq + example * dq_b + h * dq_h, dq_t, m, queries, to_q * scale, D, BLOCK_D)
    if WANT_FACTORS:
        da += head.to(tl.int64) * queries * (RANK + REST)
        _store_rows(da, RANK + REST, m, queries, to_a, RANK, RANK)
        if REST:
            _store_rows(da + RANK, RANK + REST, m, queries, to_rest, REST, REST)


@triton.jit
def key_gradients(
    dk, dv, dc, q, k, v, a, c, table, dense, valid, bounds, shift, q_positions, k_positions, q_ids, k_ids,
    id_blocks, mask, seed, do, lse, delta,
    q_b, q_h, q_t, k_b, k_h, k_s, v_b, v_h, v_s, o_b, o_h, o_t, a_b, a_h, c_b, c_h, table_h, dense_b, dense_h, dense_t,
    valid_b, q_positions_b, k_positions_b, q_ids_b, k_ids_b, mask_b, mask_h, mask_t, mask_s,
    dk_b, dk_h, dk_s, dv_b, dv_h, dv_s,
    heads, groups, queries, keys, scale, low, high, dropout,
    D: tl.constexpr, E: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr, RANK: tl.constexpr,
    REST: tl.constexpr, TABLE: tl.constexpr, DENSE: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    VALID: tl.constexpr, SHIFT: tl.constexpr, POSITIONS: tl.constexpr, IDS: tl.constexpr, MASK: tl.constexpr,
    DROPOUT: tl.constexpr, WANT_KEYS: tl.constexpr, WANT_FACTORS: tl.constexpr, ROWS: tl.constexpr,
    KEYS: tl.constexpr,
):  # fmt: skip
    """Write the gradients of one block of keys and values, over all query heads that read them, and of its factors.

    Tiles are transposed, (KEYS, ROWS), so that the products need no further transposition of weights.
    """
    block = tl.program_id(0)
    example = tl.program_id(2).to(tl.int64)
    g = tl.program_id(1).to(tl.int64)
    first = block * KEYS
    n = first + tl.arange(0, KEYS)
    k += example * k_b + g * k_h
    v += example * v_b + g * v_h
    valid += example * valid_b
    q_positions += example * q_positions_b
    k_positions += example * k_positions_b
    q_ids += example * q_ids_b
    k_ids += example * k_ids_b
    start = tl.full((), 0, tl.int32)
    stop = queries
    if VALID:  # no query sees keys that are all padding
        outside = (first >= tl.load(bounds + 2 * example + 1)) | (first + KEYS <= tl.load(bounds + 2 * example))
        stop = tl.where(outside, 0, stop)
    if IDS:
        ends = id_blocks + 2 * (example * tl.num_programs(0) + block)
        start = tl.maximum(start, tl.load(ends) * ROWS)
        stop = tl.minimum(stop, tl.load(ends + 1) * ROWS)
    if SHIFT:
        moved = tl.load(shift + example)
        low -= moved
        high -= moved
    begin, last, whole, end = _blocks_seen(
        first, -high, -low, start, stop, KEYS, ROWS, HIGH and not POSITIONS, LOW and not POSITIONS,
        VALID or POSITIONS or IDS or MASK,
    )  # fmt: skip

    own_k = _rows(k, k_s, n, keys, D, BLOCK_D)
    own_v = _rows(v, v_s, n, keys, E, BLOCK_E)
    if WANT_KEYS:
        to_k = tl.zeros((KEYS, BLOCK_D), tl.float32)
        to_v = tl.zeros((KEYS, BLOCK_E), tl.float32)
    for member in range(0, groups):
        h = g * groups + member
        head = example * heads + h
        its_q_at = q + example * q_b + h * q_h
        its_do_at = do + example * o_b + h * o_h
        a_at = a + example * a_b + h * a_h
        c_at = c + example * c_b + h * c_h
        table_at = table + h * table_h
        dense_at = dense + example * dense_b + h * dense_h
        mask_at = mask + example * mask_b + h * mask_h
        if RANK:
            own_c = _rows(c_at, RANK + REST, n, keys, RANK, RANK)
        if REST:
            own_rest = _rows(c_at + RANK, RANK + REST, n, keys, REST, REST)
        if RANK and WANT_FACTORS:
            to_c = tl.zeros((KEYS, RANK), tl.float32)
        if REST and WANT_FACTORS:
            to_rest = tl.zeros((KEYS, REST), tl.float32)
        for part in tl.static_range(2):
            count = end - whole if part == 0 else (whole - begin) + (last - end)
            for index in range(0, count):
                if part == 0:
                    at = whole + index
                else:
                    at = tl.where(index < whole - begin, begin + index, end + index - (whole - begin))
                m = at * ROWS + tl.arange(0, ROWS)
                its_q = _rows(its_q_at, q_t, m, queries, D, BLOCK_D)
                s = tl.dot(own_k, tl.trans(its_q), input_precision="ieee") * (scale * LOG2_E)
                if RANK:
                    its_a = _rows(a_at, RANK + REST, m, queries, RANK, RANK)
                    s = tl.dot(own_c, tl.trans(its_a), s, input_precision="ieee")
                if REST:
                    its_rest = _rows(a_at + RANK, RANK + REST, m, queries, REST, REST)
                    s = tl.dot(own_rest, tl.trans(its_rest), s, input_precision="ieee")
                s = _bias_and_mask(
                    s, m[None, :], n[:, None], queries, keys, table_at, dense_at, dense_t, low, high,
                    valid, q_positions, k_positions, q_ids, k_ids, mask_at, mask_t, mask_s,
                    TABLE, DENSE, LOW, HIGH, VALID, POSITIONS, IDS, MASK, part == 1,
                )  # fmt: skip
                row = head * queries + m
                its_lse = tl.load(lse + row, mask=m < queries, other=float("inf")) * LOG2_E
                its_lse = tl.where(its_lse == float("-inf"), float("inf"), its_lse)
                its_delta = tl.load(delta + row, mask=m < queries, other=0.0)
                p = tl.exp2(s - its_lse[None, :])
                its_do = _rows(its_do_at, o_t, m, queries, E, BLOCK_E)
                dp = tl.dot(own_v, tl.trans(its_do), input_precision="ieee")
                given = p
                if DROPOUT:
                    kept = _kept(seed, head.to(tl.int32), m[None, :], n[:, None], keys, dropout)
                    given = tl.where(kept, p * (1.0 / (1.0 - dropout)), 0.0)
                    dp = tl.where(kept, dp * (1.0 / (1.0 - dropout)), 0.0)
                ds = (p * (dp - its_delta[None, :])).to(its_q.dtype)
                if WANT_KEYS:
                    to_v = tl.dot(given.to(its_do.dtype), its_do, to_v, input_precision="ieee")
                    to_k = tl.dot(ds, its_q, to_k, input_precision="ieee")
                if RANK and WANT_FACTORS:
                    to_c = tl.dot(ds, its_a, to_c, input_precision="ieee")
                if REST and WANT_FACTORS:
                    to_rest = tl.dot(ds, its_rest, to_rest, input_precision="ieee")
        if WANT_FACTORS:  # the factor of the queries came multiplied by log2(e)
            dc_at = dc + head * keys * (RANK + REST)
            _store_rows(dc_at, RANK + REST, n, keys, to_c * LN_2, RANK, RANK)
            if REST:
                _store_rows(dc_at + RANK, RANK + REST, n, keys, to_rest * LN_2, REST, REST)
    if WANT_KEYS:
        _store_rows(dk + example * dk_b + g * dk_h, dk_s, n, keys, to_k * scale, D, BLOCK_D)
        _store_rows(dv + example * dv_b + g * dv_h, dv_s, n, keys, to_v, E, BLOCK_E)


@triton.jit
def dense_gradients(
    ddense, q, k, v, a, c, table, dense, valid, shift, q_positions, k_positions, q_ids, k_ids, mask, seed,
    do, lse, delta,
    q_b, q_h, q_t, k_b, k_h, k_s, v_b, v_h, v_s, o_b, o_h, o_t, a_b, a_h, c_b, c_h, table_h, dense_b, dense_h, dense_t,
    valid_b, q_positions_b, k_positions_b, q_ids_b, k_ids_b, mask_b, mask_h, mask_t, mask_s,
    shared_examples, shared_heads,
    heads, groups, queries, keys, scale, low, high, dropout,
    D: tl.constexpr, E: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr, RANK: tl.constexpr,
    REST: tl.constexpr, TABLE: tl.constexpr, DENSE: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    VALID: tl.constexpr, SHIFT: tl.constexpr, POSITIONS: tl.constexpr, IDS: tl.constexpr, MASK: tl.constexpr,
    DROPOUT: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Write one tile of the gradient of the dense part, summed over the examples and heads that share it.

    The scores are computed once more, so that nothing is added to memory from several programs: the sum has one order,
    and no matrix for each example is made.
    """
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    n = tl.program_id(1) * KEYS + tl.arange(0, KEYS)
    own = tl.program_id(2)
    own_heads = heads // shared_heads
    total = tl.zeros((ROWS, KEYS), tl.float32)
    for index in range(0, shared_examples * shared_heads):
        example = ((own // own_heads) + index // shared_heads).to(tl.int64)
        h = ((own % own_heads) + index % shared_heads).to(tl.int64)
        head = example * heads + h
        lowest = low
        highest = high
        if SHIFT:
            moved = tl.load(shift + example)
            lowest -= moved
            highest -= moved
        its_q = _rows(q + example * q_b + h * q_h, q_t, m, queries, D, BLOCK_D)
        its_k = _rows(k + example * k_b + (h // groups) * k_h, k_s, n, keys, D, BLOCK_D)
        s = tl.dot(its_q, tl.trans(its_k), input_precision="ieee") * (scale * LOG2_E)
        if RANK:
            a_at = a + example * a_b + h * a_h
            c_at = c + example * c_b + h * c_h
            its_a = _rows(a_at, RANK + REST, m, queries, RANK, RANK)
            s = tl.dot(its_a, tl.trans(_rows(c_at, RANK + REST, n, keys, RANK, RANK)), s, input_precision="ieee")
        if REST:
            its_rest = _rows(a_at + RANK, RANK + REST, m, queries, REST, REST)
            other = _rows(c_at + RANK, RANK + REST, n, keys, REST, REST)
            s = tl.dot(its_rest, tl.trans(other), s, input_precision="ieee")
        s = _bias_and_mask(
            s, m[:, None], n[None, :], queries, keys, table + h * table_h,
            dense + example * dense_b + h * dense_h, dense_t, lowest, highest, valid + example * valid_b,
            q_positions + example * q_positions_b, k_positions + example * k_positions_b,
            q_ids + example * q_ids_b, k_ids + example * k_ids_b,
            mask + example * mask_b + h * mask_h, mask_t, mask_s,
            TABLE, DENSE, LOW, HIGH, VALID, POSITIONS, IDS, MASK, True,
        )  # fmt: skip
        row = head * queries + m
        its_lse = tl.load(lse + row, mask=m < queries, other=float("inf")) * LOG2_E
        its_lse = tl.where(its_lse == float("-inf"), float("inf"), its_lse)
        p = tl.exp2(s - its_lse[:, None])
        its_do = _rows(do + example * o_b + h * o_h, o_t, m, queries, E, BLOCK_E)
        its_v = _rows(v + example * v_b + (h // groups) * v_h, v_s, n, keys, E, BLOCK_E)
        dp = tl.dot(its_do, tl.trans(its_v), input_precision="ieee")
        if DROPOUT:
            kept = _kept(seed, head.to(tl.int32), m[:, None], n[None, :], keys, dropout)
            dp = tl.where(kept, dp * (1.0 / (1.0 - dropout)), 0.0)
        total += p * (dp - tl.load(delta + row, mask=m < queries, other=0.0)[:, None])
    at = ddense + (own.to(tl.int64) * queries + m[:, None]) * keys + n[None, :]
    tl.store(at, total.to(ddense.dtype.element_ty), mask=(m[:, None] < queries) & (n[None, :] < keys))
