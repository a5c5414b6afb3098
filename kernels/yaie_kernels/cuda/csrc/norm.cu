// RMSNorm (Zhang & Sennrich 2019, arXiv:1910.07467). A block takes one row, or several if rows are
// short (qk-norm): then the lanes of a warp are divided among rows. A thread keeps its elements in
// registers between the sum of squares and the product.
#include "yaie/device.cuh"

namespace yaie::cuda {
namespace {

constexpr int kThreads = 256;  // threads of a block with several rows

// KEPT: packs that a thread keeps in registers; the rest of a longer row is read again.
template <class T, int N, int KEPT, bool ADD>
__global__ void rms_norm_kernel(RmsNorm p) {
  const unsigned rows = p.tokens * p.heads, heads = p.heads;
  const unsigned own = blockIdx.x * blockDim.y + threadIdx.y;
  const unsigned row = min(own, rows - 1);  // no early return: rows share a warp's reductions
  const bool live = own < rows;
  const T* x = static_cast<const T*>(p.x) + row / heads * p.x_token_stride +
               row % heads * p.x_head_stride;
  const T* residual = static_cast<const T*>(p.residual) + (ADD ? row * p.residual_stride : 0);
  T* total = static_cast<T*>(p.total) + row * p.cols;
  const T* weight = static_cast<const T*>(p.weight);
  T* out = static_cast<T*>(p.out) + row * p.cols;
  const int packs = p.cols / N;

  Pack<T, N> kept[KEPT];
  float square = 0;
  auto take = [&](int pack) {
    auto value = Pack<T, N>::load(x + pack * N);
    if constexpr (ADD) {
      const auto more = Pack<T, N>::load(residual + pack * N);
#pragma unroll
      for (int i = 0; i < N; ++i)
        value.at[i] = from_float<T>(to_float(value.at[i]) + to_float(more.at[i]));
      if (live) value.store(total + pack * N);
    }
#pragma unroll
    for (int i = 0; i < N; ++i) square += to_float(value.at[i]) * to_float(value.at[i]);
    return value;
  };
#pragma unroll
  for (int k = 0; k < KEPT; ++k) {
    const int pack = threadIdx.x + k * blockDim.x;
    if (pack < packs) kept[k] = take(pack);
  }
  const int rest = threadIdx.x + KEPT * blockDim.x;
  for (int pack = rest; pack < packs; pack += blockDim.x) take(pack);

  const float scale = rsqrtf(row_sum_of_block(square) / p.cols + p.eps);
  auto give = [&](int pack, Pack<T, N> value) {
    const auto factor = Pack<T, N>::load(weight + pack * N);
#pragma unroll
    for (int i = 0; i < N; ++i)
      value.at[i] =
          from_float<T>(to_float(value.at[i]) * scale * (to_float(factor.at[i]) + p.offset));
    if (live) value.store(out + pack * N);
  };
#pragma unroll
  for (int k = 0; k < KEPT; ++k) {
    const int pack = threadIdx.x + k * blockDim.x;
    if (pack < packs) give(pack, kept[k]);
  }
  for (int pack = rest; pack < packs; pack += blockDim.x)
    give(pack, Pack<T, N>::load((ADD ? total : x) + pack * N));
}

template <class T, int N, int KEPT>
void launch(const RmsNorm& p, cudaStream_t stream) {
  const int64_t rows = p.tokens * p.heads;
  const int64_t lanes = ceil_div(p.cols / N, KEPT);
  int threads = std::min<int64_t>(1024, ceil_div(lanes, kWarp) * kWarp);
  while (threads <= kWarp && threads / 2 >= lanes) threads /= 2;
  const int together = threads > kWarp ? 1 : (rows < kThreads ? kWarp : kThreads) / threads;
  const dim3 block(threads, together);
  const unsigned blocks = ceil_div(rows, block.y);
  if (p.residual)
    rms_norm_kernel<T, N, KEPT, true><<<blocks, block, 0, stream>>>(p);
  else
    rms_norm_kernel<T, N, KEPT, false><<<blocks, block, 0, stream>>>(p);
}

}  // namespace

void run(const RmsNorm& p, Stream stream) {
  with_type(p.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int N = kPack<T>;
    const auto on = static_cast<cudaStream_t>(stream);
    const bool wide = aligned<T>(p.x, p.x_token_stride, p.x_head_stride, p.cols) &&
                      aligned<T>(p.weight) && aligned<T>(p.out) && aligned<T>(p.total) &&
                      aligned<T>(p.residual, p.residual_stride);
    if (!wide)
      launch<T, 1, 4>(p, on);
    else if (p.tokens * p.heads < 256 || p.cols / N <= kWarp)
      launch<T, N, 1>(p, on);  // few rows: one thread per pack, for latency
    else
      launch<T, N, 2>(p, on);
  });
}

}  // namespace yaie::cuda
