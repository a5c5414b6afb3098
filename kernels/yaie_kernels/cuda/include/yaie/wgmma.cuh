// Warpgroup products of sm_90a (PTX ISA, wgmma): four warps multiply 64 rows by a tile in shared
// memory, asynchronously. Needs `-gencode arch=compute_90a,code=sm_90a`.
//
// A tile in shared memory consists of blocks of 64 half-type columns; a block has rows of 128 bytes
// in 16-byte chunks, chunk c of row r at c ^ (r % 8). This is the hardware's 128-byte swizzle,
// whose pattern repeats every 1024 bytes; tiles are aligned to that.
#pragma once

#include "yaie/mma.cuh"

namespace yaie::cuda {

constexpr int kSwizzleRow = 128;    // bytes per row of a block
constexpr int kSwizzleAtom = 1024;  // bytes of eight rows

template <int ROWS>
__device__ inline uint32_t block_address(uint32_t tile, int row, int chunk) {
  return tile + chunk / 8 * ROWS * kSwizzleRow + row * kSwizzleRow + ((chunk % 8 ^ row % 8) << 4);
}

// Descriptor of the right (or left) operand at `address`. `leading`: bytes between blocks of
// columns if the product runs over rows (see multiply_values), else unused.
__device__ inline uint64_t operand(uint32_t address, uint32_t leading) {
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) |
         static_cast<uint64_t>(leading >> 4) << 16 |
         static_cast<uint64_t>(kSwizzleAtom >> 4) << 32 | uint64_t{1} << 62;
}

// After this and a barrier, warpgroup products see what ordinary instructions wrote to shared
// memory.
__device__ inline void publish_shared() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

// Required before products that read or write registers which other instructions wrote.
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ inline void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

// Waits until at most N of the most recently committed groups are pending.
template <int N>
__device__ inline void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(N) : "memory");
}

// Copies rows [first, first + ROWS) of a head into a tile; rows from `limit` on become zeros.
template <class T, int D, int ROWS, int THREADS>
__device__ inline void fetch_blocks(uint32_t tile, const T* head, int64_t token_stride, int first,
                                    int limit) {
  constexpr int kChunks = D / 8;
  static_assert(ROWS * kChunks % THREADS == 0);
#pragma unroll
  for (int i = 0; i < ROWS * kChunks / THREADS; ++i) {
    const int item = i * THREADS + threadIdx.x;
    const int row = item / kChunks, chunk = item % kChunks;
    const bool here = first + row < limit;
    copy_async(block_address<ROWS>(tile, row, chunk),
               head + (here ? (first + row) * token_stride + chunk * 8 : 0), here);
  }
}

// Keeps the compiler from moving uses of an accumulator above the wait for it.
template <int N>
__device__ inline void hold(float (&acc)[N][4]) {
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) asm volatile("" : "+f"(acc[i][j])::"memory");
}

#define YAIE_ROW(a, i) "+f"(a[i][0]), "+f"(a[i][1]), "+f"(a[i][2]), "+f"(a[i][3])
#define YAIE_ROWS_4(a, i) \
  YAIE_ROW(a, i), YAIE_ROW(a, i + 1), YAIE_ROW(a, i + 2), YAIE_ROW(a, i + 3)
#define YAIE_ROWS_8(a) YAIE_ROWS_4(a, 0), YAIE_ROWS_4(a, 4)
#define YAIE_ROWS_16(a) YAIE_ROWS_8(a), YAIE_ROWS_4(a, 8), YAIE_ROWS_4(a, 12)
#define YAIE_REGISTERS_32                                                                     \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"   \
  "%24,%25,%26,%27,%28,%29,%30,%31}"
#define YAIE_REGISTERS_64                                                                     \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"   \
  "%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,"  \
  "%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"

// scores[64 x 8 N] = left[64 x 16] x right[8 N x 16]^T, added to scores if `add`; the 16 columns
// are contiguous in both operands.
#define YAIE_SCORES(TYPE, SHAPE, REGISTERS, ROWS, A, B, P)                                \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\n"                            \
               "wgmma.mma_async.sync.aligned." SHAPE ".f32." TYPE "." TYPE " " REGISTERS ", " A \
               ", " B ", p, 1, 1, 0, 0;\n}\n"                                             \
               : ROWS(acc)                                                                \
               : "l"(left), "l"(right), "r"(static_cast<int>(add)))

template <class T>
__device__ inline void multiply_scores(float (&acc)[16][4], uint64_t left, uint64_t right,
                                       bool add) {
  if constexpr (std::is_same_v<T, __half>)
    YAIE_SCORES("f16", "m64n128k16", YAIE_REGISTERS_64, YAIE_ROWS_16, "%64", "%65", "%66");
  else
    YAIE_SCORES("bf16", "m64n128k16", YAIE_REGISTERS_64, YAIE_ROWS_16, "%64", "%65", "%66");
}

template <class T>
__device__ inline void multiply_scores(float (&acc)[8][4], uint64_t left, uint64_t right,
                                       bool add) {
  if constexpr (std::is_same_v<T, __half>)
    YAIE_SCORES("f16", "m64n64k16", YAIE_REGISTERS_32, YAIE_ROWS_8, "%32", "%33", "%34");
  else
    YAIE_SCORES("bf16", "m64n64k16", YAIE_REGISTERS_32, YAIE_ROWS_8, "%32", "%33", "%34");
}

// acc[64 x 8 N] = left[64 x 16] x right[16 x 8 N], added to acc if `add`: the product runs over rows
// of the tile.
#define YAIE_VALUES(TYPE, SHAPE, REGISTERS, ROWS, LEFT, B, P)                                  \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\n"                                 \
               "wgmma.mma_async.sync.aligned." SHAPE ".f32." TYPE "." TYPE " " REGISTERS ", "  \
               LEFT ", " B ", p, 1, 1, 1;\n}\n"                                               \
               : ROWS(acc)                                                                     \
               : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right),           \
                 "r"(static_cast<int>(add)))

template <class T>
__device__ inline void multiply_values(float (&acc)[16][4], const Matrices& left, uint64_t right,
                                       bool add) {
  if constexpr (std::is_same_v<T, __half>)
    YAIE_VALUES("f16", "m64n128k16", YAIE_REGISTERS_64, YAIE_ROWS_16, "{%64,%65,%66,%67}", "%68",
                "%69");
  else
    YAIE_VALUES("bf16", "m64n128k16", YAIE_REGISTERS_64, YAIE_ROWS_16, "{%64,%65,%66,%67}", "%68",
                "%69");
}

template <class T>
__device__ inline void multiply_values(float (&acc)[8][4], const Matrices& left, uint64_t right,
                                       bool add) {
  if constexpr (std::is_same_v<T, __half>)
    YAIE_VALUES("f16", "m64n64k16", YAIE_REGISTERS_32, YAIE_ROWS_8, "{%32,%33,%34,%35}", "%36",
                "%37");
  else
    YAIE_VALUES("bf16", "m64n64k16", YAIE_REGISTERS_32, YAIE_ROWS_8, "{%32,%33,%34,%35}", "%36",
                "%37");
}

// scores = left x right^T: 64 rows at `left` in a tile of LEFT rows, all RIGHT rows of `right`.
template <class T, int D, int LEFT, int RIGHT>
__device__ inline void multiply_tiles(float (&scores)[RIGHT / 8][4], uint32_t left,
                                      uint32_t right) {
#pragma unroll
  for (int d = 0; d < D / 16; ++d) {
    const int block = d / 4 * kSwizzleRow, inside = d % 4 * 32;  // 16 columns are 32 bytes
    multiply_scores<T>(scores, operand(left + block * LEFT + inside, 0),
                       operand(right + block * RIGHT + inside, 0), d > 0);
  }
}

// acc = left x tile, added to acc if `add`: left[64 x ROWS] in registers, all ROWS rows of a tile.
template <class T, int D, int ROWS>
__device__ inline void multiply_rows(float (&acc)[D / 8][4], const Matrices (&left)[ROWS / 16],
                                     uint32_t tile, bool add) {
#pragma unroll
  for (int n = 0; n < ROWS / 16; ++n)
    multiply_values<T>(acc, left[n], operand(tile + n * 16 * kSwizzleRow, ROWS * kSwizzleRow),
                       add || n > 0);
}

#undef YAIE_ROW
#undef YAIE_ROWS_4
#undef YAIE_ROWS_8
#undef YAIE_ROWS_16
#undef YAIE_REGISTERS_32
#undef YAIE_REGISTERS_64
#undef YAIE_SCORES
#undef YAIE_VALUES

}  // namespace yaie::cuda
