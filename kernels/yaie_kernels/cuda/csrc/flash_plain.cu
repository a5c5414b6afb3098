// FlashAttention-2 in float32 without tensor cores, which would round the products. The passes are
// those of flash_forward.cu and flash_backward.cu; a block owns 32 rows and loops over tiles of 32
// rows of the other side. Eight neighbouring lanes share a row: lane i has the row's scores with
// tile rows i, i + 8, i + 16, i + 24, and columns 4 i + 32 n of the row's sums.
#include "yaie/flash.cuh"

namespace yaie::cuda {
namespace {

constexpr int kRows = 32;
constexpr int kThreads = kRows * 8;
constexpr int kEach = kRows / 8;  // scores per lane

template <int D>
constexpr int kStride = D + 4;  // so that 16-byte pieces of eight rows are in different banks
template <int D>
constexpr int kTile = kRows * kStride<D>;

using Four = Pack<float, 4>;

template <int D>
__device__ void fetch(float* tile, const float* head, int64_t token_stride, int first, int limit) {
  for (int item = threadIdx.x; item < kRows * D / 4; item += kThreads) {
    const int row = item / (D / 4), col = item % (D / 4) * 4;
    const Four zeros{};
    const bool here = first + row < limit;
    (here ? Four::load(head + (first + row) * token_stride + col) : zeros)
        .store(tile + row * kStride<D> + col);
  }
}

// scores[i] = own . tile[lane % 8 + 8 i]
template <int D>
__device__ void products(float (&scores)[kEach], const float* own, const float* tile) {
  Four sums[kEach] = {};
  for (int col = 0; col < D; col += 4) {
    const Four x = Four::load(own + col);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const Four y = Four::load(tile + (threadIdx.x % 8 + 8 * i) * kStride<D> + col);
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[i].at[j] += x.at[j] * y.at[j];
    }
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    scores[i] = (sums[i].at[0] + sums[i].at[1]) + (sums[i].at[2] + sums[i].at[3]);
}

// acc += sum over the tile's rows of share * row
template <int D>
__device__ void add_rows(Four (&acc)[D / 32], const float (&shares)[kEach], const float* tile) {
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const float share = __shfl_sync(kAll, shares[row / 8], row % 8, 8);
#pragma unroll
    for (int n = 0; n < D / 32; ++n) {
      const Four x = Four::load(tile + row * kStride<D> + threadIdx.x % 8 * 4 + n * 32);
#pragma unroll
      for (int j = 0; j < 4; ++j) acc[n].at[j] += share * x.at[j];
    }
  }
}

template <int D>
__device__ void give(float* to, const Four (&acc)[D / 32], float factor) {
#pragma unroll
  for (int n = 0; n < D / 32; ++n) {
    Four x = acc[n];
#pragma unroll
    for (int j = 0; j < 4; ++j) x.at[j] *= factor;
    x.store(to + threadIdx.x % 8 * 4 + n * 32);
  }
}

template <int D>
__global__ void __launch_bounds__(kThreads) forward_kernel(FlashForward p) {
  extern __shared__ __align__(16) float tiles[];
  float *const queries = tiles, *const keys = queries + kTile<D>, *const values = keys + kTile<D>;
  const int head = blockIdx.y, batch = blockIdx.z;
  const int first = (gridDim.x - 1 - blockIdx.x) * kRows;
  const int kv_head = head / (p.q_heads / p.kv_heads);
  const int q_len = p.q_len, kv_len = p.kv_len, context = kv_len - q_len;
  const int token = first + threadIdx.x / 8;
  const int limit = p.causal ? max(min(token + 1 + context, kv_len), 0) : kv_len;
  const int end = p.causal ? min(min(first + kRows, q_len) + context, kv_len) : kv_len;
  const float scale = p.scale;

  fetch<D>(queries, head_of<float>(p.q, batch, head), p.q.token_stride, first, q_len);
  Four acc[D / 32] = {};
  float best = -INFINITY, total = 0;
  for (int at = 0; at < end; at += kRows) {
    __syncthreads();
    fetch<D>(keys, head_of<float>(p.k, batch, kv_head), p.k.token_stride, at, kv_len);
    fetch<D>(values, head_of<float>(p.v, batch, kv_head), p.v.token_stride, at, kv_len);
    __syncthreads();
    float scores[kEach];
    products<D>(scores, queries + threadIdx.x / 8 * kStride<D>, keys);
    float peak = best;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int key = at + threadIdx.x % 8 + 8 * i;
      scores[i] = key < limit ? scores[i] * scale : -INFINITY;
      peak = fmaxf(peak, scores[i]);
    }
    peak = warp_max<8>(peak);
    const float level = peak == -INFINITY ? 0.f : peak;
    const float shrink = expf(best - level);
    best = peak;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) sum += scores[i] = expf(scores[i] - level);
    total = total * shrink + warp_sum<8>(sum);
#pragma unroll
    for (int n = 0; n < D / 32; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) acc[n].at[j] *= shrink;
    add_rows<D>(acc, scores, values);
  }
  if (token >= q_len) return;
  const int64_t row = (static_cast<int64_t>(batch) * p.q_heads + head) * q_len + token;
  give<D>(static_cast<float*>(p.out) + row * D, acc, total > 0 ? 1 / total : 0.f);
  if (threadIdx.x % 8 == 0)
    static_cast<float*>(p.lse)[row] = total > 0 ? best + logf(total) : -INFINITY;
}

// KEYS: rows are keys and the sums are grad_k and grad_v; else rows are queries, the sum is grad_q.
template <int D, bool KEYS>
__global__ void __launch_bounds__(kThreads) backward_kernel(FlashBackward p) {
  extern __shared__ __align__(16) float tiles[];
  float *const rows1 = tiles, *const rows2 = rows1 + kTile<D>;
  float *const tile1 = rows2 + kTile<D>, *const tile2 = tile1 + kTile<D>;
  const int batch = blockIdx.z, first = blockIdx.x * kRows;
  const int group = p.q_heads / p.kv_heads;
  const int kv_head = KEYS ? blockIdx.y : blockIdx.y / group;
  const int first_head = KEYS ? kv_head * group : blockIdx.y, heads = KEYS ? group : 1;
  const int q_len = p.q_len, kv_len = p.kv_len, context = kv_len - q_len;
  const int own = first + threadIdx.x / 8;
  const float scale = p.scale;
  const float* k = head_of<float>(p.k, batch, kv_head);
  const float* v = head_of<float>(p.v, batch, kv_head);
  auto line = [&](int head) { return (static_cast<int64_t>(batch) * p.q_heads + head) * q_len; };
  auto grad_out = [&](int head) {
    return static_cast<const float*>(p.grad_out) + line(head) * D;
  };

  if constexpr (KEYS) {
    fetch<D>(rows1, k, p.k.token_stride, first, kv_len);
    fetch<D>(rows2, v, p.v.token_stride, first, kv_len);
  } else {
    fetch<D>(rows1, head_of<float>(p.q, batch, first_head), p.q.token_stride, first, q_len);
    fetch<D>(rows2, grad_out(first_head), D, first, q_len);
  }
  int begin = 0, end = KEYS ? q_len : kv_len;
  if (p.causal && KEYS) begin = max(first - context, 0) / kRows * kRows;
  if (p.causal && !KEYS) end = min(min(first + kRows, q_len) + context, kv_len);
  Four acc1[D / 32] = {}, acc2[KEYS ? D / 32 : 1] = {};
  for (int head = first_head; head < first_head + heads; ++head)
    for (int at = begin; at < end; at += kRows) {
      __syncthreads();
      if constexpr (KEYS) {
        fetch<D>(tile1, head_of<float>(p.q, batch, head), p.q.token_stride, at, q_len);
        fetch<D>(tile2, grad_out(head), D, at, q_len);
      } else {
        fetch<D>(tile1, k, p.k.token_stride, at, kv_len);
        fetch<D>(tile2, v, p.v.token_stride, at, kv_len);
      }
      __syncthreads();
      float shares[kEach], slopes[kEach];
      products<D>(shares, rows1 + threadIdx.x / 8 * kStride<D>, tile1);
      products<D>(slopes, rows2 + threadIdx.x / 8 * kStride<D>, tile2);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int other = at + threadIdx.x % 8 + 8 * i;
        const int query = KEYS ? other : own, key = KEYS ? own : other;
        const bool seen = query < q_len && key < kv_len && (!p.causal || key <= query + context);
        const int64_t row = line(head) + query;
        const float lse = seen ? static_cast<const float*>(p.lse)[row] : 0.f;
        const float delta = seen ? static_cast<const float*>(p.delta)[row] : 0.f;
        shares[i] = seen ? expf(shares[i] * scale - lse) : 0.f;
        slopes[i] = shares[i] * (slopes[i] - delta);
      }
      add_rows<D>(acc1, slopes, tile1);
      if constexpr (KEYS) add_rows<D>(acc2, shares, tile2);
    }
  if (own >= (KEYS ? kv_len : q_len)) return;
  const int64_t all = KEYS ? p.kv_heads : p.q_heads, length = KEYS ? kv_len : q_len;
  const int64_t to = ((batch * all + blockIdx.y) * length + own) * D;
  give<D>(static_cast<float*>(KEYS ? p.grad_k : p.grad_q) + to, acc1, scale);
  if constexpr (KEYS) give<D>(static_cast<float*>(p.grad_v) + to, acc2, 1.f);
}

template <int D>
void launch(const FlashForward& p, cudaStream_t stream) {
  constexpr int kBytes = 3 * kTile<D> * sizeof(float);
  allow_shared(forward_kernel<D>, kBytes);
  const dim3 grid(ceil_div(p.q_len, kRows), p.q_heads, p.batch);
  forward_kernel<D><<<grid, kThreads, kBytes, stream>>>(p);
}

template <int D>
void launch(const FlashBackward& p, cudaStream_t stream) {
  constexpr int kBytes = 4 * kTile<D> * sizeof(float);
  launch_delta<float>(p, stream);
  allow_shared(backward_kernel<D, false>, kBytes);
  allow_shared(backward_kernel<D, true>, kBytes);
  const dim3 queries(ceil_div(p.q_len, kRows), p.q_heads, p.batch);
  const dim3 keys(ceil_div(p.kv_len, kRows), p.kv_heads, p.batch);
  backward_kernel<D, false><<<queries, kThreads, kBytes, stream>>>(p);
  backward_kernel<D, true><<<keys, kThreads, kBytes, stream>>>(p);
}

template <class Params>
void launch_dim(const Params& p, Stream stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  switch (p.dim) {
    case 64:
      return launch<64>(p, on);
    case 128:
      return launch<128>(p, on);
    case 256:
      return launch<256>(p, on);
    default:
      throw std::invalid_argument("yaie: flash attention on CUDA wants heads of 64, 128 or 256");
  }
}

}  // namespace

void run_plain(const FlashForward& p, Stream stream) { launch_dim(p, stream); }
void run_plain(const FlashBackward& p, Stream stream) { launch_dim(p, stream); }

}  // namespace yaie::cuda
