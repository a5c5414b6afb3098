// silu(gate) * up (SwiGLU, arXiv:2002.05202) of rows (gate | up); a thread takes 16 bytes of each.
#include "yaie/device.cuh"

namespace yaie::cuda {
namespace {

constexpr int kThreads = 128;

template <class T, int N>
__global__ void silu_mul_kernel(SiluMul p) {
  const int64_t row = blockIdx.x;
  const int col = (blockIdx.y * blockDim.x + threadIdx.x) * N;
  if (col >= p.cols) return;
  const T* gate = static_cast<const T*>(p.gate_up) + row * p.row_stride + col;
  auto x = Pack<T, N>::load(gate);
  const auto up = Pack<T, N>::load(gate + p.cols);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float value = to_float(x.at[i]);
    x.at[i] = from_float<T>(__fdividef(value, 1.f + __expf(-value)) * to_float(up.at[i]));
  }
  x.store(static_cast<T*>(p.out) + row * p.cols + col);
}

template <class T, int N>
void launch(const SiluMul& p, cudaStream_t stream) {
  const dim3 blocks(p.rows, ceil_div(p.cols / N, kThreads));
  silu_mul_kernel<T, N><<<blocks, kThreads, 0, stream>>>(p);
}

}  // namespace

void run(const SiluMul& p, Stream stream) {
  with_type(p.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if (aligned<T>(p.gate_up, p.row_stride, p.cols) && aligned<T>(p.out))
      launch<T, kPack<T>>(p, static_cast<cudaStream_t>(stream));
    else
      launch<T, 1>(p, static_cast<cudaStream_t>(stream));
  });
}

}  // namespace yaie::cuda
