// Tensor cores and asynchronous copies, as inline PTX for sm_80 and later.
//
// A tile in shared memory has rows of D half-type elements in 16-byte chunks; chunk c of row r is
// at c ^ (r % 8), so that the eight rows of a matrix are read from different banks. An accumulator of
// 16 x 8 is four floats per lane: rows lane / 4 and lane / 4 + 8, columns 2 * (lane % 4) and the
// next. Fragment layouts are those of the PTX ISA's mma.m16n8k16 and ldmatrix.
#pragma once

#include "yaie/device.cuh"

namespace yaie::cuda {

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Copies 16 bytes to shared memory; without `here` it writes zeros and does not read the source.
__device__ inline void copy_async(uint32_t to, const void* from, bool here) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from),
               "r"(here ? 16 : 0));
}

__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;\n"); }

// Waits until at most N of the most recently committed groups are pending.
template <int N>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(N) : "memory");
}

using Matrices = uint32_t[4];  // four 8 x 8 matrices, two elements of each per lane

template <int D>
__device__ inline uint32_t tile_address(uint32_t tile, int row, int chunk) {
  return tile + row * (2 * D) + ((chunk ^ (row & 7)) << 4);
}

__device__ inline void load_matrices(Matrices& m, uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}

__device__ inline void load_matrices_transposed(Matrices& m, uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}

// The left operand: rows [row, row + 16), columns [16 k, 16 k + 16) of a tile.
template <int D>
__device__ inline void load_left(Matrices& m, uint32_t tile, int row, int k) {
  const int lane = threadIdx.x % kWarp;
  load_matrices(m, tile_address<D>(tile, row + lane % 16, 2 * k + lane / 16));
}

// The right operand of left x tile^T: m[0..1] for tile rows [row, row + 8), m[2..3] for the next 8,
// over columns [16 k, 16 k + 16).
template <int D>
__device__ inline void load_right_transposed(Matrices& m, uint32_t tile, int row, int k) {
  const int lane = threadIdx.x % kWarp;
  load_matrices(m, tile_address<D>(tile, row + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
}

// The right operand of left x tile: m[0..1] for columns [16 n, 16 n + 8), m[2..3] for the next 8,
// over tile rows [row, row + 16).
template <int D>
__device__ inline void load_right(Matrices& m, uint32_t tile, int row, int n) {
  const int lane = threadIdx.x % kWarp;
  load_matrices_transposed(m, tile_address<D>(tile, row + lane % 16, 2 * n + lane / 16));
}

// acc += left[16 x 16] x right[16 x 8]
template <class T>
__device__ inline void multiply(float (&acc)[4], const Matrices& left, uint32_t right0,
                                uint32_t right1) {
  if constexpr (std::is_same_v<T, __half>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}

template <class T>
__device__ inline uint32_t pack_two(float low, float high) {
  const Pack<T, 2> both{{from_float<T>(low), from_float<T>(high)}};
  return *reinterpret_cast<const uint32_t*>(&both);
}

// Converts two neighbouring accumulators [16 x 16] to a left operand.
template <class T>
__device__ inline void as_left(Matrices& m, const float (&first)[4], const float (&second)[4]) {
  m[0] = pack_two<T>(first[0], first[1]);
  m[1] = pack_two<T>(first[2], first[3]);
  m[2] = pack_two<T>(second[0], second[1]);
  m[3] = pack_two<T>(second[2], second[3]);
}

// Reductions over the four lanes that share a row of an accumulator.
__device__ inline float row_max(float x) { return warp_max<4>(x); }
__device__ inline float row_sum(float x) { return warp_sum<4>(x); }

}  // namespace yaie::cuda
