// Shared by the passes of flash attention.
#pragma once

#include "yaie/mma.cuh"

namespace yaie::cuda {

template <class T>
__device__ inline const T* head_of(const Heads& x, int64_t batch, int64_t head) {
  return static_cast<const T*>(x.data) + batch * x.batch_stride + head * x.head_stride;
}

// Copies rows [first, first + ROWS) of a head into a tile; rows from `limit` on become zeros.
template <class T, int D, int ROWS, int THREADS>
__device__ inline void fetch_tile(uint32_t tile, const T* head, int64_t token_stride, int first,
                                  int limit) {
  constexpr int kChunks = D / 8;
  static_assert(ROWS * kChunks % THREADS == 0);
#pragma unroll
  for (int i = 0; i < ROWS * kChunks / THREADS; ++i) {
    const int item = i * THREADS + threadIdx.x;
    const int row = item / kChunks, chunk = item % kChunks;
    const bool here = first + row < limit;
    copy_async(tile_address<D>(tile, row, chunk),
               head + (here ? (first + row) * token_stride + chunk * 8 : 0), here);
  }
}

// delta = sum(grad_out * out) of each row; one warp per row.
template <class T>
__global__ void delta_kernel(FlashBackward p, int64_t rows) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  const T* grad = static_cast<const T*>(p.grad_out) + row * p.dim;
  const T* out = static_cast<const T*>(p.out) + row * p.dim;
  float sum = 0;
  for (int col = threadIdx.x; col < p.dim; col += kWarp)
    sum += to_float(grad[col]) * to_float(out[col]);
  sum = warp_sum(sum);
  if (threadIdx.x == 0) static_cast<float*>(p.delta)[row] = sum;
}

template <class T>
void launch_delta(const FlashBackward& p, cudaStream_t stream) {
  constexpr int kRows = 8;
  const int64_t rows = p.batch * p.q_heads * p.q_len;
  delta_kernel<T><<<ceil_div(rows, kRows), dim3(kWarp, kRows), 0, stream>>>(p, rows);
}

// Versions for sm_90 and some head sizes; they return false if they did nothing.
bool run_sm90(const FlashForward&, Stream);
bool run_sm90(const FlashBackward&, Stream);

// Versions for float32, without tensor cores.
void run_plain(const FlashForward&, Stream);
void run_plain(const FlashBackward&, Stream);

}  // namespace yaie::cuda
