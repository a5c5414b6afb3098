// The passes of flash_backward.cu with the warpgroup products (wgmma) of sm_90a, for heads of 64
// and 128. Two warpgroups have 64 rows each. The products of one iteration's sums overlap with the
// next iteration's scores; a third stage of shared memory keeps the tiles that they read.
#include "yaie/flash.cuh"
#include "yaie/wgmma.cuh"

namespace yaie::cuda {
namespace {

template <int D>
struct Backward90 {
  static constexpr int kThreads = 256;
  static constexpr int kRows = 128, kOther = 64, kStages = 3;
  static constexpr int kRowBytes = kRows * D * 2;
  static constexpr int kTileBytes = kOther * D * 2;
  static constexpr int kSumBytes = kStages * 2 * kOther * 4;
  static constexpr int kBytes = kSwizzleAtom + 2 * kRowBytes + kStages * 2 * kTileBytes + kSumBytes;
};

// KEYS: rows are keys and the sums are grad_k and grad_v; else rows are queries, the sum is grad_q.
template <class T, int D, bool KEYS>
__global__ void __launch_bounds__(Backward90<D>::kThreads)
    flash_backward_sm90_kernel(FlashBackward p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Shape = Backward90<D>;
  constexpr int kRows = Shape::kRows, kOther = Shape::kOther, kThreads = Shape::kThreads;
  constexpr int kStages = Shape::kStages;
  extern __shared__ unsigned char memory[];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int q_len = p.q_len, kv_len = p.kv_len, context = kv_len - q_len;
  const int group = p.q_heads / p.kv_heads;
  const int batch = blockIdx.z;
  // start the blocks with the most tiles first: the last queries, the first keys
  const int first = (KEYS ? blockIdx.x : gridDim.x - 1 - blockIdx.x) * kRows;
  const int row = warp * 16;  // the warp's first row in the block
  const int kv_head = KEYS ? blockIdx.y : blockIdx.y / group;
  const int row_limit = KEYS ? kv_len : q_len, other_limit = KEYS ? q_len : kv_len;
  const float factor = static_cast<float>(p.scale) * kLog2e;

  const uint32_t base = shared_address(memory);
  const uint32_t rows1 = (base + kSwizzleAtom - 1) / kSwizzleAtom * kSwizzleAtom;  // q or k
  const uint32_t rows2 = rows1 + Shape::kRowBytes;                                 // grad_out or v
  const uint32_t stages = rows2 + Shape::kRowBytes;  // of (k, v) or (q, grad_out)
  float* const sums = reinterpret_cast<float*>(memory + (rows1 - base) + 2 * Shape::kRowBytes +
                                               kStages * 2 * Shape::kTileBytes);  // (lse, delta)
  const uint32_t mine = warp / 4 * 64 * kSwizzleRow;  // this warpgroup's rows in a block

  const T* k = head_of<T>(p.k, batch, kv_head);
  const T* v = head_of<T>(p.v, batch, kv_head);
  auto line = [&](int head) { return (static_cast<int64_t>(batch) * p.q_heads + head) * q_len; };
  auto grad_out = [&](int head) { return static_cast<const T*>(p.grad_out) + line(head) * D; };
  auto lse_of = [&](int64_t at) {
    const float lse = static_cast<const float*>(p.lse)[at];
    return lse == -INFINITY ? 0.f : lse * kLog2e;
  };

  // Tiles of the other side, [begin, end) for each query head; several heads where rows are keys.
  int begin = 0, end = (other_limit + kOther - 1) / kOther;
  if (p.causal && KEYS) begin = min(max(first - context, 0) / kOther, end);
  if (p.causal && !KEYS) {
    const int seen = min(first + kRows, q_len) + context;
    end = min((max(seen, 0) + kOther - 1) / kOther, end);
  }
  const int first_head = KEYS ? kv_head * group : blockIdx.y;
  const int each = end - begin;
  const int rounds = each * (KEYS ? group : 1);

  auto fetch = [&](int round) {
    const int head = first_head + round / each, at = (begin + round % each) * kOther;
    const int stage = round % kStages;
    const uint32_t tile1 = stages + stage * 2 * Shape::kTileBytes;
    const uint32_t tile2 = tile1 + Shape::kTileBytes;
    if constexpr (KEYS) {
      fetch_blocks<T, D, kOther, kThreads>(tile1, head_of<T>(p.q, batch, head), p.q.token_stride,
                                           at, q_len);
      fetch_blocks<T, D, kOther, kThreads>(tile2, grad_out(head), D, at, q_len);
      if (threadIdx.x < kOther) {
        const int i = threadIdx.x;
        const bool here = at + i < q_len;
        float* to = sums + stage * 2 * kOther + i;
        to[0] = here ? lse_of(line(head) + at + i) : 0.f;
        to[kOther] = here ? static_cast<const float*>(p.delta)[line(head) + at + i] : 0.f;
      }
    } else {
      fetch_blocks<T, D, kOther, kThreads>(tile1, k, p.k.token_stride, at, kv_len);
      fetch_blocks<T, D, kOther, kThreads>(tile2, v, p.v.token_stride, at, kv_len);
    }
  };

  if constexpr (KEYS) {
    fetch_blocks<T, D, kRows, kThreads>(rows1, k, p.k.token_stride, first, kv_len);
    fetch_blocks<T, D, kRows, kThreads>(rows2, v, p.v.token_stride, first, kv_len);
  } else {
    fetch_blocks<T, D, kRows, kThreads>(rows1, head_of<T>(p.q, batch, first_head),
                                        p.q.token_stride, first, q_len);
    fetch_blocks<T, D, kRows, kThreads>(rows2, grad_out(first_head), D, first, q_len);
  }
  float own_lse[2] = {}, own_delta[2] = {};
  if constexpr (!KEYS)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = first + row + lane / 4 + half * 8;
      if (token >= q_len) continue;
      own_lse[half] = lse_of(line(first_head) + token);
      own_delta[half] = static_cast<const float*>(p.delta)[line(first_head) + token];
    }
  if (rounds > 0) fetch(0);
  commit_copies();

  // uninitialised: the first iteration overwrites them, and zeros here would make ptxas serialise
  // all products
  float acc1[D / 8][4], acc2[KEYS ? D / 8 : 1][4];
  Matrices left1[kOther / 16], left2[KEYS ? kOther / 16 : 1];
  for (int round = 0; round < rounds; ++round) {
    wait_copies<0>();
    publish_shared();
    __syncthreads();  // this tile has arrived; of the older ones only the last is still read
    if (round + 1 < rounds) fetch(round + 1);
    commit_copies();
    const int stage = round % kStages;
    const uint32_t tile1 = stages + stage * 2 * Shape::kTileBytes;
    const uint32_t tile2 = tile1 + Shape::kTileBytes;
    const float* other_lse = sums + stage * 2 * kOther;
    const float* other_delta = other_lse + kOther;
    const int at = (begin + round % each) * kOther;

    float shares[kOther / 8][4], slopes[kOther / 8][4];  // the first products overwrite them
    begin_products();
    multiply_tiles<T, D, kRows, kOther>(shares, rows1 + mine, tile1);
    commit_products();
    multiply_tiles<T, D, kRows, kOther>(slopes, rows2 + mine, tile2);
    commit_products();
    wait_products<1>();  // also for the sums of the previous iteration
    hold(shares);
    // whether any pair in this warp's tile is out of bounds or masked
    const bool edge = first + row + 16 > row_limit || at + kOther > other_limit ||
                      (p.causal && (KEYS ? first + row + 15 > at + context
                                         : at + kOther - 1 > first + row + context));
#pragma unroll
    for (int n = 0; n < kOther / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int own = first + row + lane / 4 + i / 2 * 8;
        const int col = n * 8 + lane % 4 * 2 + i % 2, other = at + col;
        const int query = KEYS ? other : own, key = KEYS ? own : other;
        const bool seen = !edge || (query < q_len && key < kv_len &&
                                    (!p.causal || key <= query + context));
        const float lse = KEYS ? other_lse[col] : own_lse[i / 2];
        shares[n][i] = seen ? power_of_two(shares[n][i] * factor - lse) : 0.f;
      }
    wait_products<0>();
    hold(slopes);
#pragma unroll
    for (int n = 0; n < kOther / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int col = n * 8 + lane % 4 * 2 + i % 2;
        slopes[n][i] = shares[n][i] * (slopes[n][i] - (KEYS ? other_delta[col] : own_delta[i / 2]));
      }
#pragma unroll
    for (int n = 0; n < kOther / 16; ++n) {
      as_left<T>(left1[n], slopes[2 * n], slopes[2 * n + 1]);
      if constexpr (KEYS) as_left<T>(left2[n], shares[2 * n], shares[2 * n + 1]);
    }
    begin_products();
    multiply_rows<T, D, kOther>(acc1, left1, tile1, round > 0);
    if constexpr (KEYS) multiply_rows<T, D, kOther>(acc2, left2, tile2, round > 0);
    commit_products();
  }
  wait_products<0>();
  hold(acc1);
  hold(acc2);
  wait_copies<0>();

  const float scale = static_cast<float>(p.scale);
  const int64_t heads = KEYS ? p.kv_heads : p.q_heads;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int token = first + row + lane / 4 + half * 8;
    if (token >= row_limit) continue;
    const int64_t to = ((batch * heads + blockIdx.y) * row_limit + token) * D + lane % 4 * 2;
    T* out1 = static_cast<T*>(KEYS ? p.grad_k : p.grad_q) + to;
    T* out2 = static_cast<T*>(p.grad_v) + to;
#pragma unroll
    for (int d = 0; d < D / 8; ++d) {
      *reinterpret_cast<uint32_t*>(out1 + d * 8) =
          rounds ? pack_two<T>(acc1[d][2 * half] * scale, acc1[d][2 * half + 1] * scale) : 0;
      if constexpr (KEYS)
        *reinterpret_cast<uint32_t*>(out2 + d * 8) =
            rounds ? pack_two<T>(acc2[d][2 * half], acc2[d][2 * half + 1]) : 0;
    }
  }
#endif
}

template <class T, int D, bool KEYS>
void launch_pass(const FlashBackward& p, cudaStream_t stream) {
  using Shape = Backward90<D>;
  allow_shared(flash_backward_sm90_kernel<T, D, KEYS>, Shape::kBytes);
  const dim3 grid(ceil_div(KEYS ? p.kv_len : p.q_len, Shape::kRows), KEYS ? p.kv_heads : p.q_heads,
                  p.batch);
  flash_backward_sm90_kernel<T, D, KEYS><<<grid, Shape::kThreads, Shape::kBytes, stream>>>(p);
}

template <class T, int D>
void launch(const FlashBackward& p, cudaStream_t stream) {
  launch_delta<T>(p, stream);
  launch_pass<T, D, false>(p, stream);
  launch_pass<T, D, true>(p, stream);
}

}  // namespace

bool run_sm90(const FlashBackward& p, Stream stream) {
  if (p.dtype == DType::f32 || (p.dim != 64 && p.dim != 128)) return false;
  if (compute_capability() != 90) return false;
  switch_dtype<void, void, __half, __nv_bfloat16>(p.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto on = static_cast<cudaStream_t>(stream);
    if (p.dim == 64)
      launch<T, 64>(p, on);
    else
      launch<T, 128>(p, on);
  });
  return true;
}

}  // namespace yaie::cuda
