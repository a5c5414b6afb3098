// RoPE (Su et al. 2021, arXiv:2104.09864). A block takes one token; a thread rotates N pairs of a
// head.
#include "yaie/device.cuh"

namespace yaie::cuda {
namespace {

constexpr int kThreads = 256;

template <class T, int N>
__global__ void rope_kernel(Rope p) {
  const int64_t token = blockIdx.x;
  const float* cos = p.cos_sin + p.positions[token] * 2 * p.half;
  const int packs = p.half / N;
  const int work = (p.q_heads + p.k_heads) * packs;
  const int step = blockDim.x * gridDim.y;
  for (int item = blockIdx.y * blockDim.x + threadIdx.x; item < work; item += step) {
    const int head = item / packs, col = item % packs * N;
    T* left = head < p.q_heads
                  ? static_cast<T*>(p.q) + token * p.q_token_stride + head * p.q_head_stride
                  : static_cast<T*>(p.k) + token * p.k_token_stride +
                        (head - p.q_heads) * p.k_head_stride;
    left += col;
    auto x = Pack<T, N>::load(left), y = Pack<T, N>::load(left + p.half);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float c = cos[col + i], s = cos[p.half + col + i];
      const float a = to_float(x.at[i]), b = to_float(y.at[i]);
      x.at[i] = from_float<T>(a * c - b * s);
      y.at[i] = from_float<T>(b * c + a * s);
    }
    x.store(left);
    y.store(left + p.half);
  }
}

template <class T, int N>
void launch(const Rope& p, cudaStream_t stream) {
  const int64_t work = (p.q_heads + p.k_heads) * (p.half / N);
  const int threads = std::min<int64_t>(kThreads, ceil_div(work, kWarp) * kWarp);
  // few tokens: one item per thread, for latency
  const dim3 blocks(p.tokens, p.tokens < 1024 ? ceil_div(work, threads) : 1);
  rope_kernel<T, N><<<blocks, threads, 0, stream>>>(p);
}

}  // namespace

void run(const Rope& p, Stream stream) {
  with_type(p.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const bool wide = aligned<T>(p.q, p.q_token_stride, p.q_head_stride, p.half) &&
                      aligned<T>(p.k, p.k_token_stride, p.k_head_stride);
    if (wide)
      launch<T, kPack<T>>(p, static_cast<cudaStream_t>(stream));
    else
      launch<T, 1>(p, static_cast<cudaStream_t>(stream));
  });
}

}  // namespace yaie::cuda
