// Arguments of the operations: raw pointers, sizes, strides in elements. Each operation has one
// `run` for the CPU and one for CUDA, so that only bindings.cpp depends on torch. The last
// dimension of a tensor is contiguous unless it has a stride. Meanings and shapes:
// yaie_kernels/ops.py.
#pragma once

#include <cstdint>

#include "yaie/dtype.h"

namespace yaie {

// out = x * rsqrt(mean(x^2) + eps) * (weight + offset); row r is (token r / heads, head r % heads).
// With a residual (heads = 1), x is replaced by total = x + residual, rounded.
struct RmsNorm {
  const void* x;
  const void* residual;  // or null
  const void* weight;
  void* out;    // [tokens, heads, cols]
  void* total;  // [tokens, cols]; null without residual
  int64_t tokens, heads, cols;
  int64_t x_token_stride, x_head_stride, residual_stride;
  float eps, offset;
  DType dtype;
};

// (left, right) <- (left cos - right sin, right cos + left sin) in place, pairs (i, i + half).
struct Rope {
  void *q, *k;
  const int64_t* positions;
  const float* cos_sin;  // [positions, 2 * half]
  int64_t tokens, q_heads, k_heads, half;
  int64_t q_token_stride, q_head_stride, k_token_stride, k_head_stride;
  DType dtype;
};

// out = silu(gate) * up of rows (gate | up).
struct SiluMul {
  const void* gate_up;
  void* out;
  int64_t rows, cols, row_stride;
  DType dtype;
};

// target[target_ids[i]] = source[source_ids[i]], blocks of `block_bytes`. For CUDA either side may
// be pinned host memory; the ids are on the device.
struct CopyBlocks {
  const void* source;
  void* target;
  const int64_t *source_ids, *target_ids;
  int64_t count, block_bytes;
};

// Decode: one query per sequence over its pages. A sequence's tokens are divided into at most
// `splits` parts, `wanted` if it is short; part and lse hold their results, reduced at the end.
struct PagedAttention {
  const void *q, *k_cache, *v_cache;  // [batch, q_heads, dim], [pages, page_size, kv_heads, dim]
  void* out;                          // [batch, q_heads, dim]
  float *part, *lse;                  // [batch, q_heads, splits, dim] and [batch, q_heads, splits]
  const int32_t *block_tables, *seq_lens;
  int64_t batch, q_heads, kv_heads, dim, page_size;
  int64_t q_token_stride, q_head_stride, table_stride;
  int splits, wanted;
  int window;  // 0: none
  float scale, softcap;  // softcap 0: none
  DType dtype;
};

// A dense [batch, heads, tokens, dim] tensor whose last dimension is contiguous.
struct Heads {
  const void* data;
  int64_t batch_stride, head_stride, token_stride;
};

// out = softmax(scale q k^T) v; lse[batch, q_heads, q_len] = log of the sum of exponentials. The
// queries are aligned with the last keys: causal query i sees keys j <= i + kv_len - q_len; a query
// that sees none has out 0 and lse -inf. lse is float32, float64 for float64.
struct FlashForward {
  Heads q, k, v;
  void *out, *lse;  // out is contiguous
  int64_t batch, q_heads, kv_heads, q_len, kv_len, dim;
  double scale;
  bool causal;
  DType dtype;
};

// Gradients of flash attention. All tensors but q, k and v are contiguous; delta[batch, q_heads,
// q_len] is scratch of lse's type for sum(grad_out * out) of each row.
struct FlashBackward {
  Heads q, k, v;
  const void *out, *grad_out, *lse;
  void *delta, *grad_q, *grad_k, *grad_v;
  int64_t batch, q_heads, kv_heads, q_len, kv_len, dim;
  double scale;
  bool causal;
  DType dtype;
};

namespace cpu {
void run(const RmsNorm&);
void run(const Rope&);
void run(const SiluMul&);
void run(const CopyBlocks&);
void run(const PagedAttention&);
void run(const FlashForward&);
void run(const FlashBackward&);
}  // namespace cpu

namespace cuda {
using Stream = void*;  // cudaStream_t on which kernels are launched, without synchronisation
void run(const RmsNorm&, Stream);
void run(const Rope&, Stream);
void run(const SiluMul&, Stream);
void run(const CopyBlocks&, Stream);
void run(const PagedAttention&, Stream);
void run(const FlashForward&, Stream);
void run(const FlashBackward&, Stream);
}  // namespace cuda

}  // namespace yaie
