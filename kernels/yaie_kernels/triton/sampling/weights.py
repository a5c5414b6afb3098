"""Integer weights of logits, as `reference.sampling` defines them, and keys in the logits' order.

Kernels that compute weights run without fused multiply-add, as the reference rounds twice.
"""

# mypy: disable-error-code="no-untyped-def"

import triton
import triton.language as tl

from yaie_kernels.reference.sampling import sample as rules

GREEDY_BELOW = tl.constexpr(rules.GREEDY_BELOW)
WEIGHT_ONE = tl.constexpr(float(2**rules.WEIGHT_BITS))
LOWEST_KEY = tl.constexpr(-2139095041)  # the key of -inf
NO_KEY = tl.constexpr(-2147483648)  # below the key of every logit
_LOG2_E = tl.constexpr(rules.LOG2_E)
_FLOOR = tl.constexpr(rules.FLOOR_LOG2)
_AS_BITS = tl.constexpr(1.5 * 2**23 + rules.WEIGHT_BITS)  # from 2**23 on floats are integers
_C5 = tl.constexpr(rules.EXP2[0])
_C4 = tl.constexpr(rules.EXP2[1])
_C3 = tl.constexpr(rules.EXP2[2])
_C2 = tl.constexpr(rules.EXP2[3])
_C1 = tl.constexpr(rules.EXP2[4])


@triton.jit
def load_logits(logits_ptr, base, token, vocab):
    x = tl.load(logits_ptr + base + token, mask=token < vocab, other=float("-inf"))
    return x.to(tl.float32)


@triton.jit
def inverse_of(temperature):
    usable = tl.where(temperature < GREEDY_BELOW, 1.0, temperature)
    return tl.div_rn(tl.full([], 1.0, tl.float32), usable)


@triton.jit
def weights_of(x, inverse, peak):
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
    # the sum's lowest bits are those of whole + 40 (H200, 256 rows of 151,936 logits: 42 us so,
    # 49 us with a conversion)
    exponent = (whole + _AS_BITS).to(tl.int32, bitcast=True) << 23
    bits = power.to(tl.int32, bitcast=True) + exponent
    return bits.to(tl.float32, bitcast=True).to(tl.int64)


@triton.jit
def key_of(x):
    """An int32 that orders as the float does."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)  # -0.0 becomes 0.0: the two must tie
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def row_peak(peak_ptr, row, chunks, CHUNKS: tl.constexpr):
    lane = tl.arange(0, CHUNKS)
    return tl.load(peak_ptr + row * chunks + lane, mask=lane < chunks, other=float("-inf"))
