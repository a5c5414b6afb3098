// Copies of whole blocks between caches. Pinned host memory is accessed directly over the bus, so a
// swap is one launch that does not synchronise and that a CUDA graph can capture.
#include "yaie/device.cuh"

namespace yaie::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kEach = 4;  // units per thread; all are loaded before the first is stored

template <class Unit>
__global__ void copy_blocks_kernel(CopyBlocks p) {
  const int64_t units = p.block_bytes / sizeof(Unit);
  const Unit* source = static_cast<const Unit*>(p.source) + p.source_ids[blockIdx.x] * units;
  Unit* target = static_cast<Unit*>(p.target) + p.target_ids[blockIdx.x] * units;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * kThreads * kEach + threadIdx.x;
  Unit kept[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    if (first + i * kThreads < units) kept[i] = source[first + i * kThreads];
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    if (first + i * kThreads < units) target[first + i * kThreads] = kept[i];
}

template <class Unit>
void launch(const CopyBlocks& p, cudaStream_t stream) {
  const int64_t units = p.block_bytes / sizeof(Unit);
  const dim3 blocks(p.count, ceil_div(units, kThreads * kEach));
  copy_blocks_kernel<Unit><<<blocks, kThreads, 0, stream>>>(p);
}

}  // namespace

void run(const CopyBlocks& p, Stream stream) {
  const auto bits = reinterpret_cast<uintptr_t>(p.source) | reinterpret_cast<uintptr_t>(p.target) |
                    static_cast<uintptr_t>(p.block_bytes);
  if (bits % sizeof(uint4) == 0)
    launch<uint4>(p, static_cast<cudaStream_t>(stream));
  else if (bits % 2 == 0)
    launch<uint16_t>(p, static_cast<cudaStream_t>(stream));
  else
    launch<uint8_t>(p, static_cast<cudaStream_t>(stream));
}

}  // namespace yaie::cuda
