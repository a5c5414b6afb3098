// One block a row, or one warp a row where rows are short (qk-norm). A thread keeps what it loaded
// in registers between the sum of squares and the product.
#include "yaie/device.cuh"

namespace yaie::cuda {
namespace {

constexpr int kKept = 4;       // packs a thread keeps; a longer row's rest is read again
constexpr int kShortRows = 4;  // rows of a block where a warp takes one

template <class T, int N, bool ADD>
__global__ void rms_norm_kernel(RmsNorm p) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= p.tokens * p.heads) return;  // whole warps leave: blockDim.x is 32 if rows share
  const T* x = static_cast<const T*>(p.x) + row / p.heads * p.x_token_stride +
               row % p.heads * p.x_head_stride;
  const T* residual = static_cast<const T*>(p.residual) + (ADD ? row * p.residual_stride : 0);
  T* total = static_cast<T*>(p.total) + row * p.cols;
  const T* weight = static_cast<const T*>(p.weight);
  T* out = static_cast<T*>(p.out) + row * p.cols;
  const int packs = p.cols / N;

  Pack<T, N> kept[kKept];
  float square = 0;
  auto take = [&](int pack) {
    auto value = Pack<T, N>::load(x + pack * N);
    if constexpr (ADD) {
      const auto more = Pack<T, N>::load(residual + pack * N);
#pragma unroll
      for (int i = 0; i < N; ++i)
        value.at[i] = from_float<T>(to_float(value.at[i]) + to_float(more.at[i]));
      value.store(total + pack * N);
    }
#pragma unroll
    for (int i = 0; i < N; ++i) square += to_float(value.at[i]) * to_float(value.at[i]);
    return value;
  };
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const int pack = threadIdx.x + k * blockDim.x;
    if (pack < packs) kept[k] = take(pack);
  }
  const int rest = threadIdx.x + kKept * blockDim.x;
  for (int pack = rest; pack < packs; pack += blockDim.x) take(pack);

  const float scale = rsqrtf(block_sum(square) / p.cols + p.eps);
  auto give = [&](int pack, Pack<T, N> value) {
    const auto factor = Pack<T, N>::load(weight + pack * N);
#pragma unroll
    for (int i = 0; i < N; ++i)
      value.at[i] =
          from_float<T>(to_float(value.at[i]) * scale * (to_float(factor.at[i]) + p.offset));
    value.store(out + pack * N);
  };
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const int pack = threadIdx.x + k * blockDim.x;
    if (pack < packs) give(pack, kept[k]);
  }
  for (int pack = rest; pack < packs; pack += blockDim.x)
    give(pack, Pack<T, N>::load((ADD ? total : x) + pack * N));
}

template <class T, int N>
void launch(const RmsNorm& p, cudaStream_t stream) {
  const int64_t rows = p.tokens * p.heads;
  const int64_t packs = p.cols / N;
  // few rows: as many threads as there are packs, for latency; many rows: two packs a thread
  const int64_t each = rows < 256 ? 1 : 2;
  const int threads = std::min<int64_t>(1024, ceil_div(ceil_div(packs, each), kWarp) * kWarp);
  const dim3 block(threads, threads == kWarp ? kShortRows : 1);
  const unsigned blocks = ceil_div(rows, block.y);
  if (p.residual)
    rms_norm_kernel<T, N, true><<<blocks, block, 0, stream>>>(p);
  else
    rms_norm_kernel<T, N, false><<<blocks, block, 0, stream>>>(p);
}

}  // namespace

void run(const RmsNorm& p, Stream stream) {
  with_type(p.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const bool wide = aligned<T>(p.x, p.x_token_stride, p.x_head_stride, p.cols) &&
                      aligned<T>(p.weight) && aligned<T>(p.out) && aligned<T>(p.total) &&
                      aligned<T>(p.residual, p.residual_stride);
    if (wide)
      launch<T, kPack<T>>(p, static_cast<cudaStream_t>(stream));
    else
      launch<T, 1>(p, static_cast<cudaStream_t>(stream));
  });
}

}  // namespace yaie::cuda
