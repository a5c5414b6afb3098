// FlashAttention-2 with the warpgroup products (wgmma) of sm_90a, for heads of 64 and 128. Two
// warpgroups take 64 queries each. As in FlashAttention-3 (Shah et al. 2024, arXiv:2407.08608), the
// next tile's scores and softmax overlap with the product of this tile's values, so products do not
// wait for exponentials.
#include "yaie/flash.cuh"
#include "yaie/wgmma.cuh"

namespace yaie::cuda {
namespace {

template <int D>
struct Forward90 {
  static constexpr int kQueries = 128, kKeys = 128;
  static constexpr int kThreads = 256;
  static constexpr int kQueryBytes = kQueries * D * 2;
  static constexpr int kTileBytes = kKeys * D * 2;
  static constexpr int kBytes = kSwizzleAtom + kQueryBytes + 4 * kTileBytes;
};

template <class T, int D>
__global__ void __launch_bounds__(Forward90<D>::kThreads) flash_forward_sm90_kernel(FlashForward p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Shape = Forward90<D>;
  constexpr int kKeys = Shape::kKeys, kQueries = Shape::kQueries, kThreads = Shape::kThreads;
  extern __shared__ unsigned char memory[];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int first = (gridDim.x - 1 - blockIdx.x) * kQueries;  // start the longest blocks first
  const int head = blockIdx.y, batch = blockIdx.z;
  const int kv_head = head / (p.q_heads / p.kv_heads);
  const T* k = head_of<T>(p.k, batch, kv_head);
  const T* v = head_of<T>(p.v, batch, kv_head);
  const int q_len = p.q_len, kv_len = p.kv_len, context = kv_len - q_len;
  const float factor = static_cast<float>(p.scale) * kLog2e;
  const uint32_t queries =
      (shared_address(memory) + kSwizzleAtom - 1) / kSwizzleAtom * kSwizzleAtom;
  const uint32_t keys = queries + Shape::kQueryBytes;  // two stages
  const uint32_t values = keys + 2 * Shape::kTileBytes;

  const int last = min(first + kQueries, q_len) - 1;
  const int seen = p.causal ? max(min(kv_len, last + 1 + context), 0) : kv_len;
  const int tiles = (seen + kKeys - 1) / kKeys;
  auto fetch_keys = [&](int tile) {
    if (tile < tiles)
      fetch_blocks<T, D, kKeys, kThreads>(keys + tile % 2 * Shape::kTileBytes, k, p.k.token_stride,
                                          tile * kKeys, kv_len);
  };
  auto fetch_values = [&](int tile) {
    if (tile < tiles)
      fetch_blocks<T, D, kKeys, kThreads>(values + tile % 2 * Shape::kTileBytes, v,
                                          p.v.token_stride, tile * kKeys, kv_len);
  };
  fetch_blocks<T, D, kQueries, kThreads>(queries, head_of<T>(p.q, batch, head), p.q.token_stride,
                                         first, q_len);
  fetch_keys(0);
  commit_copies();
  fetch_keys(1);
  fetch_values(0);
  commit_copies();

  const int row = warp * 16;  // the warp's first row in the block
  const uint32_t mine = queries + warp / 4 * 64 * kSwizzleRow;  // this warpgroup's queries
  using Scores = float[kKeys / 8][4];
  float acc[D / 8][4] = {};
  float best[2] = {-INFINITY, -INFINITY}, total[2] = {}, shrink[2];
  Matrices shares[kKeys / 16];

  auto multiply_keys = [&](Scores& scores, int tile) {
    multiply_tiles<T, D, kQueries, kKeys>(scores, mine, keys + tile % 2 * Shape::kTileBytes);
  };
  // Replaces a tile's scores by exponentials; `shrink` is the factor for the sums so far.
  auto soften = [&](Scores& scores, int tile) {
    const int key = tile * kKeys + lane % 4 * 2;
    const bool edge = (tile + 1) * kKeys > kv_len ||
                      (p.causal && (tile + 1) * kKeys > first + row + 1 + context);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (edge) {
        const int own = first + row + lane / 4 + half * 8 + context;
        const int limit = p.causal ? min(own + 1, kv_len) : kv_len;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i)
            if (key + n * 8 + i >= limit) scores[n][2 * half + i] = -INFINITY;
      }
      float peak = best[half];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
        peak = fmaxf(peak, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
      peak = row_max(peak);
      const float level = peak == -INFINITY ? 0.f : peak * factor;  // may have seen no key yet
      shrink[half] = power_of_two(best[half] * factor - level);
      best[half] = peak;
      float sum = 0;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = scores[n][2 * half + i];
          score = power_of_two(score * factor - level);
          sum += score;
        }
      total[half] = total[half] * shrink[half] + sum;
    }
  };
  auto pack = [&](const Scores& scores) {
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n) as_left<T>(shares[n], scores[2 * n], scores[2 * n + 1]);
  };

  auto multiply_shares = [&](int tile) {
    multiply_rows<T, D, kKeys>(acc, shares, values + tile % 2 * Shape::kTileBytes, true);
  };

  if (tiles > 0) {
    wait_copies<1>();
    publish_shared();
    __syncthreads();
    Scores scores;  // uninitialised: the first product overwrites it
    begin_products();
    multiply_keys(scores, 0);
    commit_products();
    wait_products<0>();
    hold(scores);
    soften(scores, 0);
    pack(scores);
  }
  for (int tile = 0; tile + 1 < tiles; ++tile) {
    wait_copies<0>();
    publish_shared();
    __syncthreads();  // keys of tile + 1 and values of tile have arrived; older tiles are free
    Scores scores;
    hold(acc);
    begin_products();
    multiply_keys(scores, tile + 1);
    commit_products();
    multiply_shares(tile);
    commit_products();
    fetch_keys(tile + 2);
    fetch_values(tile + 1);
    commit_copies();
    wait_products<1>();
    hold(scores);
    soften(scores, tile + 1);
    wait_products<0>();
    hold(acc);
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[n][i] *= shrink[i / 2];
    pack(scores);
  }
  if (tiles > 0) {
    wait_copies<0>();
    publish_shared();
    __syncthreads();
    hold(acc);
    begin_products();
    multiply_shares(tiles - 1);
    commit_products();
    wait_products<0>();
    hold(acc);
  }

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int token = first + row + lane / 4 + half * 8;
    const float sum = row_sum(total[half]);
    if (token >= q_len) continue;
    const int64_t at = (static_cast<int64_t>(batch) * p.q_heads + head) * q_len + token;
    const float inverse = sum > 0 ? 1.f / sum : 0.f;
    T* out = static_cast<T*>(p.out) + at * D + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
      *reinterpret_cast<uint32_t*>(out + n * 8) =
          pack_two<T>(acc[n][2 * half] * inverse, acc[n][2 * half + 1] * inverse);
    if (lane % 4 == 0)
      static_cast<float*>(p.lse)[at] =
          sum > 0 ? best[half] * static_cast<float>(p.scale) + logf(sum) : -INFINITY;
  }
#endif
}

template <class T, int D>
void launch(const FlashForward& p, cudaStream_t stream) {
  using Shape = Forward90<D>;
  allow_shared(flash_forward_sm90_kernel<T, D>, Shape::kBytes);
  const dim3 grid(ceil_div(p.q_len, Shape::kQueries), p.q_heads, p.batch);
  flash_forward_sm90_kernel<T, D><<<grid, Shape::kThreads, Shape::kBytes, stream>>>(p);
}

}  // namespace

bool run_sm90(const FlashForward& p, Stream stream) {
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
