"""Sampling without a sort, over chunks of the vocabulary; see `reference.sampling` for the rules.

Six launches: the peak of each chunk; for rows with top-k or top-p a bound that few tokens pass, the
list of those few, and a search for the cut-offs among them; the integer weight that remains of each
chunk; the draw. Where the few do not settle a cut-off, the search reads the whole row. Weights are
integers, so their sums agree with the reference's to the last bit whatever the order.
Kernels that compute weights run without fused multiply-add, as the reference rounds twice.
"""

# ruff: noqa: PLR0917 - a kernel takes pointers and strides; its docstring is its formula


# mypy: disable-error-code="no-untyped-def"

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie_kernels import philox
from yaie_kernels.reference import sampling as rules

_CHUNK = 4096
_BLOCK = 256  # tokens whose largest stands for them when the bound is chosen
_FEW = 4096  # tokens that a search holds in registers
_GREEDY_BELOW = tl.constexpr(rules.GREEDY_BELOW)
_LOG2_E = tl.constexpr(rules.LOG2_E)
_BITS = tl.constexpr(rules.WEIGHT_BITS)
_ONE = tl.constexpr(float(2**rules.WEIGHT_BITS))
_FLOOR = tl.constexpr(rules.FLOOR_LOG2)
_C5 = tl.constexpr(rules.EXP2[0])
_C4 = tl.constexpr(rules.EXP2[1])
_C3 = tl.constexpr(rules.EXP2[2])
_C2 = tl.constexpr(rules.EXP2[3])
_C1 = tl.constexpr(rules.EXP2[4])
_M0 = tl.constexpr(philox.MULTIPLIERS[0])
_M1 = tl.constexpr(philox.MULTIPLIERS[1])
_STEP0 = tl.constexpr(philox.KEY_STEPS[0])
_STEP1 = tl.constexpr(philox.KEY_STEPS[1])
_KEY0 = tl.constexpr(philox.KEY[0])
_KEY1 = tl.constexpr(philox.KEY[1])
_ROUNDS = tl.constexpr(philox.ROUNDS)
_LOWEST_KEY = tl.constexpr(-2139095041)  # the key of -inf
_NO_KEY = tl.constexpr(-2147483648)  # below the key of every logit


@triton.jit
def _load(logits_ptr, base, token, vocab):
    x = tl.load(logits_ptr + base + token, mask=token < vocab, other=float("-inf"))
    return x.to(tl.float32) + 0.0  # -0.0 becomes 0.0: the two must tie


@triton.jit
def _inverse(temperature):
    usable = tl.where(temperature < _GREEDY_BELOW, 1.0, temperature)
    return tl.div_rn(tl.full([], 1.0, tl.float32), usable)


@triton.jit
def _weights(x, inverse, peak):
    """trunc(2**40 * 2**((x/T - peak/T) log2 e)) as int64."""
    x = (x * inverse - peak * inverse) * _LOG2_E
    x = tl.maximum(x, _FLOOR)
    whole = tl.floor(x)
    x = x - whole
    power = x * _C5 + _C4
    power = power * x + _C3
    power = power * x + _C2
    power = power * x + _C1
    power = power * x + 1.0
    exponent = (whole + _BITS).to(tl.int32) << 23
    bits = power.to(tl.int32, bitcast=True) + exponent
    return bits.to(tl.float32, bitcast=True).to(tl.int64)


@triton.jit
def _key(x):
    """An int32 that orders as the float does."""
    bits = x.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _filtered(temperature_ptr, top_k_ptr, top_p_ptr, row, vocab):
    """Whether a row has a cut-off by count, and one by mass."""
    drawn = tl.load(temperature_ptr + row) >= _GREEDY_BELOW
    top_k = tl.load(top_k_ptr + row)
    return drawn & (top_k > 0) & (top_k < vocab), drawn & (tl.load(top_p_ptr + row) < 1.0)


@triton.jit
def _peak_kernel(
    logits_ptr, peak_ptr, best_ptr, block_key_ptr, temperature_ptr, top_k_ptr, top_p_ptr,
    vocab, row_stride, chunks, CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The largest logit of a chunk and the lowest token that has it; the largest of each block."""
    row = tl.program_id(1).to(tl.int64)
    chunk = tl.program_id(0)
    token = chunk * CHUNK + tl.arange(0, CHUNK)
    x = _load(logits_ptr, row * row_stride, token, vocab)
    peak, lane = tl.max(x, axis=0, return_indices=True, return_indices_tie_break_left=True)
    tl.store(peak_ptr + row * chunks + chunk, peak)
    tl.store(best_ptr + row * chunks + chunk, chunk * CHUNK + lane)
    by_count, by_mass = _filtered(temperature_ptr, top_k_ptr, top_p_ptr, row, vocab)
    if by_count | by_mass:
        keys = tl.max(tl.reshape(_key(x), (CHUNK // BLOCK, BLOCK)), axis=1)
        block = chunk * (CHUNK // BLOCK) + tl.arange(0, CHUNK // BLOCK)
        tl.store(block_key_ptr + row * chunks * (CHUNK // BLOCK) + block, keys)


@triton.jit
def _row_peak(peak_ptr, row, chunks, CHUNKS: tl.constexpr):
    lane = tl.arange(0, CHUNKS)
    return tl.load(peak_ptr + row * chunks + lane, mask=lane < chunks, other=float("-inf"))


@triton.jit
def _weigh_kernel(
    logits_ptr, peak_ptr, sums_ptr, floor_key_ptr, floor_weight_ptr, temperature_ptr,
    vocab, row_stride, chunks, CHUNK: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    """The summed weight of what the filters leave of a chunk."""
    row = tl.program_id(1).to(tl.int64)
    chunk = tl.program_id(0)
    temperature = tl.load(temperature_ptr + row)
    if temperature >= _GREEDY_BELOW:
        peak = tl.max(_row_peak(peak_ptr, row, chunks, CHUNKS), axis=0)
        token = chunk * CHUNK + tl.arange(0, CHUNK)
        x = _load(logits_ptr, row * row_stride, token, vocab)
        weight = _left(x, temperature, peak, row, floor_key_ptr, floor_weight_ptr)
        tl.store(sums_ptr + row * chunks + chunk, tl.sum(weight, axis=0))


@triton.jit
def _left(x, temperature, peak, row, floor_key_ptr, floor_weight_ptr):
    """Weights of logits x, 0 where a filter drops the token."""
    weight = _weights(x, _inverse(temperature), peak)
    kept = _key(x).to(tl.int64) >= tl.load(floor_key_ptr + row)
    return tl.where(kept & (weight >= tl.load(floor_weight_ptr + row)), weight, 0)


@triton.jit
def _held(
    logits_ptr, base, vocab, inverse, peak, floor_key, a, b, c,
    BY_MASS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Count and mass of the tokens with key >= a, >= b, >= c (and >= floor_key)."""
    count_a = tl.zeros([CHUNK], tl.int32)  # summed across lanes once, after the loop
    count_b = tl.zeros([CHUNK], tl.int32)
    count_c = tl.zeros([CHUNK], tl.int32)
    mass_a = tl.zeros([CHUNK], tl.int64)
    mass_b = tl.zeros([CHUNK], tl.int64)
    mass_c = tl.zeros([CHUNK], tl.int64)
    for start in range(0, vocab, CHUNK):
        token = start + tl.arange(0, CHUNK)
        x = _load(logits_ptr, base, token, vocab)
        key = tl.where(token < vocab, _key(x), -2147483648)
        key = tl.where(key >= floor_key, key, -2147483648)
        count_a += (key >= a).to(tl.int32)
        count_b += (key >= b).to(tl.int32)
        count_c += (key >= c).to(tl.int32)
        if BY_MASS:
            weight = _weights(x, inverse, peak)
            mass_a += tl.where(key >= a, weight, 0)
            mass_b += tl.where(key >= b, weight, 0)
            mass_c += tl.where(key >= c, weight, 0)
    counted_a = tl.sum(count_a, axis=0).to(tl.int64)
    counted_b = tl.sum(count_b, axis=0).to(tl.int64)
    counted_c = tl.sum(count_c, axis=0).to(tl.int64)
    if BY_MASS:
        held_a = tl.sum(mass_a, axis=0)
        held_b = tl.sum(mass_b, axis=0)
        held_c = tl.sum(mass_c, axis=0)
    else:
        held_a = counted_a
        held_b = counted_b
        held_c = counted_c
    return counted_a, counted_b, counted_c, held_a, held_b, held_c


@triton.jit
def _search(
    logits_ptr, base, vocab, inverse, peak, floor_key, goal,
    BY_MASS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """A key t whose tokens (key >= t) are the fewest that reach the goal; two bits a pass.

    The answer lies in [low, high]; it is settled once one token has its key there.
    """
    low = floor_key
    high = _key(peak).to(tl.int64)
    count_low = tl.full([], 2147483647, tl.int64)
    count_above = tl.full([], 0, tl.int64)  # tokens with key > high
    while (low < high) & (count_low > count_above + 1):
        span = high - low
        a = low + (span + 3) // 4
        b = low + (2 * span + 3) // 4
        c = low + (3 * span + 3) // 4
        count_a, count_b, count_c, held_a, held_b, held_c = _held(
            logits_ptr, base, vocab, inverse, peak, floor_key.to(tl.int32),
            a.to(tl.int32), b.to(tl.int32), c.to(tl.int32), BY_MASS, CHUNK,
        )  # fmt: skip
        # from the top down: each mark that misses the goal becomes the new ceiling
        count_above = tl.where(held_c >= goal, count_above, count_c)
        high = tl.where(held_c >= goal, high, c - 1)
        count_above = tl.where(held_b >= goal, count_above, count_b)
        high = tl.where(held_b >= goal, high, b - 1)
        count_above = tl.where(held_a >= goal, count_above, count_a)
        high = tl.where(held_a >= goal, high, a - 1)
        # and from the bottom up: each that reaches it the new floor
        count_low = tl.where(held_a >= goal, count_a, count_low)
        low = tl.where(held_a >= goal, a, low)
        count_low = tl.where(held_b >= goal, count_b, count_low)
        low = tl.where(held_b >= goal, b, low)
        count_low = tl.where(held_c >= goal, count_c, count_low)
        low = tl.where(held_c >= goal, c, low)
    return low


@triton.jit
def _largest_reaching(key, amount, low, high, goal):
    """The largest t in [low, high] whose tokens (key >= t) have the amount; low if none has."""
    while low < high:
        middle = (low + high + 1) >> 1
        reached = tl.sum(tl.where(key >= middle, amount, 0), axis=0) >= goal
        low = tl.where(reached, middle, low)
        high = tl.where(reached, high, middle - 1)
    return low


@triton.jit
def _bound_kernel(
    block_key_ptr, bound_ptr, found_ptr, temperature_ptr, top_k_ptr, top_p_ptr,
    vocab, blocks, FEW: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """A key that at least top-k tokens reach, or as many as three quarters of the blocks.

    As many blocks' largest tokens reach it. `found` starts at 0, or past FEW where nothing is to
    be listed.
    """
    row = tl.program_id(0).to(tl.int64)
    by_count, by_mass = _filtered(temperature_ptr, top_k_ptr, top_p_ptr, row, vocab)
    if by_count | by_mass:
        wanted = tl.where(by_count, tl.load(top_k_ptr + row), tl.maximum(blocks * 3 // 4, 1))
        lane = tl.arange(0, BLOCKS)
        key = tl.load(block_key_ptr + row * blocks + lane, mask=lane < blocks, other=_NO_KEY)
        low = tl.full([], _LOWEST_KEY, tl.int64)
        if vocab > FEW:
            high = tl.max(key, axis=0).to(tl.int64)
            ones = tl.full([BLOCKS], 1, tl.int32)
            low = _largest_reaching(key.to(tl.int64), ones, low, high, wanted)
        listed = (vocab <= FEW) | (wanted <= blocks)
        tl.store(bound_ptr + row, low.to(tl.int32))
        tl.store(found_ptr + row, tl.where(listed, 0, FEW + 1))


@triton.jit
def _list_kernel(
    logits_ptr, peak_ptr, bound_ptr, few_ptr, found_ptr, mass_ptr,
    temperature_ptr, top_k_ptr, top_p_ptr, vocab, row_stride, chunks,
    FEW: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    """Logits of a chunk that reach the bound, in any order, and the mass of the chunk."""
    row = tl.program_id(1).to(tl.int64)
    chunk = tl.program_id(0)
    by_count, by_mass = _filtered(temperature_ptr, top_k_ptr, top_p_ptr, row, vocab)
    if by_count | by_mass:
        token = chunk * CHUNK + tl.arange(0, CHUNK)
        x = _load(logits_ptr, row * row_stride, token, vocab)
        reached = (token < vocab) & (_key(x) >= tl.load(bound_ptr + row))
        count = tl.sum(reached.to(tl.int32), axis=0)
        if count > 0:
            first = tl.atomic_add(found_ptr + row, count)
            place = first + tl.cumsum(reached.to(tl.int32), axis=0) - 1
            tl.store(few_ptr + row * FEW + place, x, mask=reached & (place < FEW))
        if by_mass:
            peak = tl.max(_row_peak(peak_ptr, row, chunks, CHUNKS), axis=0)
            weight = _weights(x, _inverse(tl.load(temperature_ptr + row)), peak)
            mass = tl.sum(tl.where(token < vocab, weight, 0), axis=0)
            tl.store(mass_ptr + row * chunks + chunk, mass)


@triton.jit
def _goal(top_p, mass):
    """ceil(top_p * mass), at least 1."""
    wanted = top_p.to(tl.float64) * mass.to(tl.float64)
    goal = wanted.to(tl.int64)
    return tl.maximum(goal + (goal.to(tl.float64) < wanted).to(tl.int64), 1)


@triton.jit
def _filter_kernel(
    logits_ptr, peak_ptr, few_ptr, found_ptr, mass_ptr, floor_key_ptr, floor_weight_ptr,
    temperature_ptr, top_k_ptr, top_p_ptr, min_p_ptr, vocab, row_stride, chunks,
    FEW: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    """Cut-off key and weight of a row; a row without top-k and top-p reads no logits."""
    row = tl.program_id(0).to(tl.int64)
    floor_key = tl.full([], _LOWEST_KEY, tl.int64)
    by_count, by_mass = _filtered(temperature_ptr, top_k_ptr, top_p_ptr, row, vocab)
    if by_count | by_mass:
        base = row * row_stride
        inverse = _inverse(tl.load(temperature_ptr + row))
        top_k = tl.load(top_k_ptr + row).to(tl.int64)
        top_p = tl.load(top_p_ptr + row)
        peak = tl.max(_row_peak(peak_ptr, row, chunks, CHUNKS), axis=0)
        highest = _key(peak).to(tl.int64)
        found = tl.load(found_ptr + row)
        complete = found <= FEW
        lane = tl.arange(0, FEW)
        listed = lane < tl.where(complete, found, 0)
        x = tl.load(few_ptr + row * FEW + lane, mask=listed, other=float("-inf"))
        key = tl.where(listed, _key(x), _NO_KEY).to(tl.int64)
        if by_count:
            if complete:
                ones = tl.full([FEW], 1, tl.int32)
                floor_key = _largest_reaching(key, ones, floor_key, highest, top_k)
            else:
                floor_key = _search(
                    logits_ptr, base, vocab, inverse, peak, floor_key, top_k, False, CHUNK
                )
        if by_mass:
            weight = tl.where(key >= floor_key, _weights(x, inverse, peak), 0)
            held = tl.sum(weight, axis=0)
            mass = held
            if (not by_count) | (not complete):
                lanes = tl.arange(0, CHUNKS)
                masses = tl.load(mass_ptr + row * chunks + lanes, mask=lanes < chunks, other=0)
                mass = tl.sum(masses, axis=0)
                if by_count:
                    least = floor_key.to(tl.int32)
                    _, _, _, mass, _, _ = _held(
                        logits_ptr, base, vocab, inverse, peak, least, least, least, least,
                        True, CHUNK,
                    )  # fmt: skip
            goal = _goal(top_p, mass)
            if complete & (held >= goal):
                floor_key = _largest_reaching(key, weight, floor_key, highest, goal)
            else:
                floor_key = _search(
                    logits_ptr, base, vocab, inverse, peak, floor_key, goal, True, CHUNK
                )
    share = tl.load(min_p_ptr + row) * _ONE
    floor_weight = share.to(tl.int64)
    floor_weight += (floor_weight.to(tl.float32) < share).to(tl.int64)
    tl.store(floor_key_ptr + row, floor_key)
    tl.store(floor_weight_ptr + row, floor_weight)


@triton.jit
def _draw(seed, position, total):
    """floor(r * total / 2**62) with r from Philox4x32-10 at counter (seed, position)."""
    mask = tl.full([], 0xFFFFFFFF, tl.int64)
    c0 = seed & mask
    c1 = (seed >> 32) & mask
    c2 = position & mask
    c3 = (position >> 32) & mask
    key0 = tl.full([], _KEY0, tl.int64)
    key1 = tl.full([], _KEY1, tl.int64)
    for _ in range(_ROUNDS):
        product0 = c0 * tl.full([], _M0, tl.int64)
        product1 = c2 * tl.full([], _M1, tl.int64)
        c0 = ((product1 >> 32) & mask) ^ c1 ^ key0
        c2 = ((product0 >> 32) & mask) ^ c3 ^ key1
        c1 = product1 & mask
        c3 = product0 & mask
        key0 = (key0 + _STEP0) & mask
        key1 = (key1 + _STEP1) & mask
    r1 = c0 >> 1
    r0 = c1 >> 1
    t1 = total >> 31
    t0 = total & 0x7FFFFFFF
    middle = r1 * t0 + r0 * t1 + ((r0 * t0) >> 31)
    return r1 * t1 + (middle >> 31)


@triton.jit
def _draw_kernel(
    logits_ptr, peak_ptr, best_ptr, sums_ptr, floor_key_ptr, floor_weight_ptr,
    temperature_ptr, seed_ptr, position_ptr, ids_ptr,
    vocab, row_stride, chunks, CHUNK: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    """The first token whose running weight passes the draw, or the argmax of a greedy row."""
    row = tl.program_id(0).to(tl.int64)
    temperature = tl.load(temperature_ptr + row)
    peaks = _row_peak(peak_ptr, row, chunks, CHUNKS)
    peak, lead = tl.max(peaks, axis=0, return_indices=True, return_indices_tie_break_left=True)
    if temperature < _GREEDY_BELOW:
        lead = tl.minimum(lead, chunks - 1)
        best = tl.load(best_ptr + row * chunks + lead)
        tl.store(ids_ptr + row, tl.minimum(best, vocab - 1).to(tl.int64))  # NaN rows may overrun
    else:
        lane = tl.arange(0, CHUNKS)
        sums = tl.load(sums_ptr + row * chunks + lane, mask=lane < chunks, other=0)
        total = tl.maximum(tl.sum(sums, axis=0), 1)
        target = _draw(tl.load(seed_ptr + row), tl.load(position_ptr + row), total)
        chunk = tl.sum((tl.cumsum(sums, axis=0) <= target).to(tl.int32), axis=0)
        target -= tl.sum(tl.where(lane < chunk, sums, 0), axis=0)
        token = chunk * CHUNK + tl.arange(0, CHUNK)
        x = _load(logits_ptr, row * row_stride, token, vocab)
        weight = _left(x, temperature, peak, row, floor_key_ptr, floor_weight_ptr)
        passed = tl.cumsum(weight, axis=0) <= target
        found = chunk * CHUNK + tl.sum(passed.to(tl.int32), axis=0)
        tl.store(ids_ptr + row, tl.minimum(found, vocab - 1).to(tl.int64))


def sample(
    logits: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    seed: Tensor,
    position: Tensor,
) -> Tensor:
    batch, vocab = logits.shape
    device = logits.device
    ids = torch.empty(batch, dtype=torch.int64, device=device)
    if batch == 0:
        return ids
    chunk = min(_CHUNK, triton.next_power_of_2(vocab))
    chunks = triton.cdiv(vocab, chunk)
    peak = torch.empty((batch, chunks), dtype=torch.float32, device=device)
    best = torch.empty((batch, chunks), dtype=torch.int32, device=device)
    sums = torch.empty((batch, chunks), dtype=torch.int64, device=device)
    floors = torch.empty((2, batch), dtype=torch.int64, device=device)  # key, weight
    block = min(_BLOCK, chunk)
    blocks = chunks * (chunk // block)
    block_key = torch.empty((batch, blocks), dtype=torch.int32, device=device)
    bound, found = torch.empty((2, batch), dtype=torch.int32, device=device)
    few = torch.empty((batch, _FEW), dtype=torch.float32, device=device)
    stride = logits.stride(0)
    sizes = {"CHUNK": chunk, "CHUNKS": triton.next_power_of_2(chunks)}
    exact = {**sizes, "num_warps": 8, "enable_fp_fusion": False}
    filters = (temperature, top_k, top_p)
    _peak_kernel[(chunks, batch)](
        logits, peak, best, block_key, *filters, vocab, stride, chunks,
        CHUNK=chunk, BLOCK=block, num_warps=4,
    )  # fmt: skip
    _bound_kernel[(batch,)](
        block_key, bound, found, *filters, vocab, blocks,
        FEW=_FEW, BLOCKS=triton.next_power_of_2(blocks), num_warps=4,
    )  # fmt: skip
    _list_kernel[(chunks, batch)](
        logits, peak, bound, few, found, sums, *filters, vocab, stride, chunks, FEW=_FEW, **exact
    )
    _filter_kernel[(batch,)](
        logits, peak, few, found, sums, floors[0], floors[1], *filters, min_p,
        vocab, stride, chunks, FEW=_FEW, **{**exact, "num_warps": 16},
    )  # fmt: skip
    _weigh_kernel[(chunks, batch)](
        logits, peak, sums, floors[0], floors[1], temperature, vocab, stride, chunks, **exact
    )
    _draw_kernel[(batch,)](
        logits, peak, best, sums, floors[0], floors[1], temperature, seed, position, ids,
        vocab, stride, chunks, **exact,
    )  # fmt: skip
    return ids
