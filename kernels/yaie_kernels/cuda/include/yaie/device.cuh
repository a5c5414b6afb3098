// Shared by all kernels: conversions to float, 16-byte loads, reductions, launches.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "yaie/ops.h"

namespace yaie::cuda {

constexpr int kWarp = 32;
constexpr float kLog2e = 1.4426950408889634f;
constexpr unsigned kAll = 0xffffffffu;

template <class Body>
void with_type(DType dtype, Body body) {
  switch_dtype<void, float, __half, __nv_bfloat16>(dtype, body);
}

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__half x) { return __half2float(x); }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class T>
__device__ inline T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline __half from_float<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// N elements that move in one instruction where N * sizeof(T) is 16.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  static constexpr int kSize = N;
  T at[N];

  __device__ static Pack load(const T* from) { return *reinterpret_cast<const Pack*>(from); }
  __device__ void store(T* to) const { *reinterpret_cast<Pack*>(to) = *this; }
};

template <class T>
constexpr int kPack = 16 / sizeof(T);

// Whether 16-byte access is allowed at a base and all multiples of these strides (in elements).
template <class T, class... Strides>
bool aligned(const void* base, Strides... strides) {
  return reinterpret_cast<uintptr_t>(base) % 16 == 0 && ((strides % kPack<T> == 0) && ...);
}

template <int WIDTH = kWarp>
__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int step = WIDTH / 2; step; step /= 2) x += __shfl_xor_sync(kAll, x, step);
  return x;
}

template <int WIDTH = kWarp>
__device__ inline float warp_max(float x) {
#pragma unroll
  for (int step = WIDTH / 2; step; step /= 2) x = fmaxf(x, __shfl_xor_sync(kAll, x, step));
  return x;
}

// The sum over the blockDim.x threads of a row, returned to all of them. blockDim.x is a power of
// two up to 32, or a multiple of 32 with one row per block.
__device__ inline float row_sum_of_block(float x) {
  __shared__ float partial[kWarp];
  const int width = blockDim.x < kWarp ? blockDim.x : kWarp;
  for (int step = width / 2; step; step /= 2) x += __shfl_xor_sync(kAll, x, step);
  if (blockDim.x <= kWarp) return x;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  if (lane == 0) partial[warp] = x;
  __syncthreads();
  return warp_sum(lane < blockDim.x / kWarp ? partial[lane] : 0.f);
}

// 2^x in one instruction, accurate to 2 units in the last place of float32.
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The sm number of the current device.
inline int compute_capability() {
  int device = 0, major = 0, minor = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  return 10 * major + minor;
}

// Allows a kernel `bytes` of dynamic shared memory on the current device.
template <class Kernel>
void allow_shared(Kernel* kernel, int bytes) {
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace yaie::cuda
