// FlashAttention-2 (Dao 2023, arXiv:2307.08691) on tensor cores. A block takes kQueries queries of
// a head and loops over the key tiles that they see; the next tile's keys and values are copied
// while this one is computed. A warp owns whole rows, so the softmax needs no exchange between
// warps.
#include "yaie/flash.cuh"

namespace yaie::cuda {
namespace {

template <int D>
struct Forward {
  static constexpr int kWarps = D == 256 ? 8 : 4;
  static constexpr int kQueries = 128;
  static constexpr int kKeys = D == 256 ? 32 : 64;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kBlocks = kQueries / kWarps / 16;  // blocks of 16 rows per warp
  static constexpr int kTileBytes = kKeys * D * 2;
  static constexpr int kQueryBytes = kQueries * D * 2;
  static constexpr int kBytes = kQueryBytes + 4 * kTileBytes;
};

template <class T, int D>
__global__ void __launch_bounds__(Forward<D>::kThreads) flash_forward_kernel(FlashForward p) {
  using Shape = Forward<D>;
  constexpr int kKeys = Shape::kKeys, kBlocks = Shape::kBlocks, kThreads = Shape::kThreads;
  extern __shared__ __align__(128) unsigned char memory[];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int first = (gridDim.x - 1 - blockIdx.x) * Shape::kQueries;  // start longest blocks first
  const int head = blockIdx.y, batch = blockIdx.z;
  const int kv_head = head / (p.q_heads / p.kv_heads);
  const T* q = head_of<T>(p.q, batch, head);
  const T* k = head_of<T>(p.k, batch, kv_head);
  const T* v = head_of<T>(p.v, batch, kv_head);
  const int q_len = p.q_len, kv_len = p.kv_len, context = kv_len - q_len;
  const uint32_t queries = shared_address(memory);
  const uint32_t stages = queries + Shape::kQueryBytes;
  const float factor = static_cast<float>(p.scale) * kLog2e;

  const int last = min(first + Shape::kQueries, q_len) - 1;
  const int seen = p.causal ? max(min(kv_len, last + 1 + context), 0) : kv_len;
  const int tiles = (seen + kKeys - 1) / kKeys;
  auto fetch = [&](int tile) {
    const uint32_t keys = stages + tile % 2 * 2 * Shape::kTileBytes;
    fetch_tile<T, D, kKeys, kThreads>(keys, k, p.k.token_stride, tile * kKeys, kv_len);
    fetch_tile<T, D, kKeys, kThreads>(keys + Shape::kTileBytes, v, p.v.token_stride, tile * kKeys,
                                      kv_len);
  };
  fetch_tile<T, D, Shape::kQueries, kThreads>(queries, q, p.q.token_stride, first, q_len);
  if (tiles > 0) fetch(0);
  commit_copies();

  float acc[kBlocks][D / 8][4] = {};
  float best[kBlocks][2], total[kBlocks][2] = {};
#pragma unroll
  for (int m = 0; m < kBlocks; ++m) best[m][0] = best[m][1] = -INFINITY;
  const int row = warp * kBlocks * 16;  // the warp's first row in the block

  for (int tile = 0; tile < tiles; ++tile) {
    wait_copies<0>();
    __syncthreads();  // this tile has arrived, and no warp reads the previous one any more
    if (tile + 1 < tiles) fetch(tile + 1);
    commit_copies();
    const uint32_t keys = stages + tile % 2 * 2 * Shape::kTileBytes;
    const uint32_t values = keys + Shape::kTileBytes;

    float scores[kBlocks][kKeys / 8][4] = {};
#pragma unroll
    for (int d = 0; d < D / 16; ++d) {
      Matrices left[kBlocks];
#pragma unroll
      for (int m = 0; m < kBlocks; ++m) load_left<D>(left[m], queries, row + m * 16, d);
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        Matrices right;
        load_right_transposed<D>(right, keys, n * 16, d);
#pragma unroll
        for (int m = 0; m < kBlocks; ++m) {
          multiply<T>(scores[m][2 * n], left[m], right[0], right[1]);
          multiply<T>(scores[m][2 * n + 1], left[m], right[2], right[3]);
        }
      }
    }

    const int key = tile * kKeys + lane % 4 * 2;
    const bool edge = (tile + 1) * kKeys > kv_len ||
                      (p.causal && (tile + 1) * kKeys > first + row + 1 + context);
#pragma unroll
    for (int m = 0; m < kBlocks; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (edge) {
          const int own = first + row + m * 16 + lane / 4 + half * 8 + context;
          const int limit = p.causal ? min(own + 1, kv_len) : kv_len;
#pragma unroll
          for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i)
              if (key + n * 8 + i >= limit) scores[m][n][2 * half + i] = -INFINITY;
        }
        float peak = best[m][half];
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
          peak = fmaxf(peak, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
        peak = row_max(peak);
        const float level = peak == -INFINITY ? 0.f : peak;  // the row may have seen no key yet
        const float shrink = power_of_two((best[m][half] - level) * factor);
        best[m][half] = peak;
        float sum = 0;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            float& score = scores[m][n][2 * half + i];
            score = power_of_two(score * factor - level * factor);
            sum += score;
          }
        total[m][half] = total[m][half] * shrink + sum;
#pragma unroll
        for (int n = 0; n < D / 8; ++n) {
          acc[m][n][2 * half] *= shrink;
          acc[m][n][2 * half + 1] *= shrink;
        }
      }

#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n) {
      Matrices left[kBlocks];
#pragma unroll
      for (int m = 0; m < kBlocks; ++m) as_left<T>(left[m], scores[m][2 * n], scores[m][2 * n + 1]);
#pragma unroll
      for (int d = 0; d < D / 16; ++d) {
        Matrices right;
        load_right<D>(right, values, n * 16, d);
#pragma unroll
        for (int m = 0; m < kBlocks; ++m) {
          multiply<T>(acc[m][2 * d], left[m], right[0], right[1]);
          multiply<T>(acc[m][2 * d + 1], left[m], right[2], right[3]);
        }
      }
    }
  }

#pragma unroll
  for (int m = 0; m < kBlocks; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = first + row + m * 16 + lane / 4 + half * 8;
      const float sum = row_sum(total[m][half]);
      if (token >= q_len) continue;
      const int64_t at = (static_cast<int64_t>(batch) * p.q_heads + head) * q_len + token;
      const float inverse = sum > 0 ? 1.f / sum : 0.f;
      T* out = static_cast<T*>(p.out) + at * D + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < D / 8; ++n)
        *reinterpret_cast<uint32_t*>(out + n * 8) =
            pack_two<T>(acc[m][n][2 * half] * inverse, acc[m][n][2 * half + 1] * inverse);
      if (lane % 4 == 0)
        static_cast<float*>(p.lse)[at] =
            sum > 0 ? best[m][half] * static_cast<float>(p.scale) + logf(sum) : -INFINITY;
    }
}

template <class T, int D>
void launch(const FlashForward& p, cudaStream_t stream) {
  using Shape = Forward<D>;
  allow_shared(flash_forward_kernel<T, D>, Shape::kBytes);
  const dim3 grid(ceil_div(p.q_len, Shape::kQueries), p.q_heads, p.batch);
  flash_forward_kernel<T, D><<<grid, Shape::kThreads, Shape::kBytes, stream>>>(p);
}

}  // namespace

void run(const FlashForward& p, Stream stream) {
  if (run_sm90(p, stream)) return;
  with_type(p.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto on = static_cast<cudaStream_t>(stream);
    if constexpr (std::is_same_v<T, float>) {
      run_plain(p, stream);
    } else {
      switch (p.dim) {
        case 64:
          return launch<T, 64>(p, on);
        case 128:
          return launch<T, 128>(p, on);
        case 256:
          return launch<T, 256>(p, on);
        default:
          throw std::invalid_argument("yaie: flash attention on CUDA wants heads of 64, 128, 256");
      }
    }
  });
}

}  // namespace yaie::cuda
