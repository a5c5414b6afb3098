// Decode attention over a paged cache (PagedAttention, arXiv:2309.06180), with each sequence
// divided into parts as in Flash-Decoding (Dao et al. 2023). A block takes one sequence, one KV
// head with up to 16 of its query heads, and one part of the tokens, so a key is read once for all
// these heads. Its warps take tiles of tokens in turn, each with its own pipeline in shared memory;
// warps do not synchronise until the end, when their sums are joined. Half types run on tensor
// cores: 16 rows are 16 query heads.
#include "yaie/mma.cuh"

namespace yaie::cuda {
namespace {

constexpr int kPlainWarps = 4;
constexpr int kHeads = 16;         // heads per block on tensor cores
constexpr int kPlainHeads = 4;     // heads per block in float32
constexpr int kMostTokens = 2048;  // most tokens per part, if there are enough parts

struct Span {
  int begin, end;
};

// The tokens of this block's part; parts begin at multiples of `tile` after the first token.
__device__ Span span_of(const PagedAttention& p, int tile) {
  const int length = p.seq_lens[blockIdx.y];
  const int first = p.window ? max(length - p.window, 0) : 0;
  if (p.splits == 1) return {first, length};
  int share = min((length - first + p.wanted - 1) / p.wanted, kMostTokens);
  share = max(share, (length - first + p.splits - 1) / p.splits);
  share = (share + tile - 1) / tile * tile;
  const int begin = first + blockIdx.z * share;
  return {begin, min(begin + share, length)};
}

// Scores before the softmax, in units of log2.
__device__ float bend(const PagedAttention& p, float score) {
  if (p.softcap == 0) return score * (p.scale * kLog2e);
  return p.softcap * kLog2e * tanhf(score * (p.scale / p.softcap));
}

// The destination of a head's result for this part, and of its lse if there are several parts.
template <class T>
__device__ void give(const PagedAttention& p, int64_t head, int col, float value) {
  const int64_t row = blockIdx.y * p.q_heads + head;
  if (p.splits == 1)
    static_cast<T*>(p.out)[row * p.dim + col] = from_float<T>(value);
  else
    p.part[(row * p.splits + blockIdx.z) * p.dim + col] = value;
}

__device__ void give_lse(const PagedAttention& p, int64_t head, float lse) {
  if (p.splits > 1) p.lse[(blockIdx.y * p.q_heads + head) * p.splits + blockIdx.z] = lse;
}

// Joins the warps: exchange holds best[WARPS][HEADS], total[WARPS][HEADS], acc[WARPS][HEADS][D].
template <class T, int D, int HEADS, int WARPS>
__device__ void join(const PagedAttention& p, const float* exchange, int64_t first_head,
                     int heads) {
  const float* best = exchange;
  const float* total = best + WARPS * HEADS;
  const float* acc = total + WARPS * HEADS;
  for (int item = threadIdx.x; item < heads * D; item += blockDim.x) {
    const int head = item / D, col = item % D;
    float peak = -INFINITY;
    for (int warp = 0; warp < WARPS; ++warp) peak = fmaxf(peak, best[warp * HEADS + head]);
    float sum = 0, value = 0;
    for (int warp = 0; warp < WARPS; ++warp) {
      if (best[warp * HEADS + head] == -INFINITY) continue;  // the warp saw no token
      const float share = exp2f(best[warp * HEADS + head] - peak);
      sum += share * total[warp * HEADS + head];
      value += share * acc[(warp * HEADS + head) * D + col];
    }
    give<T>(p, first_head + head, col, sum > 0 ? value / sum : 0.f);
    if (col == 0) give_lse(p, first_head + head, sum > 0 ? peak + log2f(sum) : -INFINITY);
  }
}

// Two or more blocks fit on a multiprocessor, so that one block's start and end are hidden.
template <int D>
struct Tiles {
  static constexpr int kWarps = D == 256 ? 2 : 4;
  static constexpr int kKeys = 16;
  static constexpr int kStages = D == 64 ? 4 : 3;
  static constexpr int kTileBytes = kKeys * D * 2;
  static constexpr int kWarpBytes = kStages * 2 * kTileBytes;
  static constexpr int kBytes = kWarps * kWarpBytes;
  static_assert(kBytes >= kWarps * kHeads * (D + 2) * 4, "the exchange at the end");
};

template <class T, int D>
__global__ void __launch_bounds__(Tiles<D>::kWarps* kWarp) paged_mma_kernel(PagedAttention p) {
  using Shape = Tiles<D>;
  constexpr int kKeys = Shape::kKeys, kStages = Shape::kStages, kWarps = Shape::kWarps;
  extern __shared__ __align__(128) unsigned char memory[];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int group = p.q_heads / p.kv_heads;
  const int blocks = (group + kHeads - 1) / kHeads;
  const int kv_head = blockIdx.x / blocks;
  const int64_t first_head = kv_head * group + blockIdx.x % blocks * kHeads;
  const int heads = min(kHeads, group - static_cast<int>(blockIdx.x % blocks) * kHeads);
  const Span span = span_of(p, kKeys);
  const int32_t* table = p.block_tables + blockIdx.y * p.table_stride;
  const int page_size = p.page_size;
  const uint32_t mine = shared_address(memory) + warp * Shape::kWarpBytes;

  // the slot of one token per lane, looked up one tile before its keys are copied
  auto look_up = [&](int tile) {
    const int token = span.begin + tile * kKeys + lane % kKeys;
    return token < span.end ? table[token / page_size] * static_cast<int64_t>(page_size) +
                                  token % page_size
                            : int64_t{-1};
  };
  auto fetch = [&](int64_t slot, int stage) {
    constexpr int kChunks = D / 8;
    const uint32_t keys = mine + stage * 2 * Shape::kTileBytes;
#pragma unroll
    for (int i = 0; i < kKeys * kChunks / kWarp; ++i) {
      const int row = (i * kWarp + lane) / kChunks, chunk = (i * kWarp + lane) % kChunks;
      const int64_t from = __shfl_sync(kAll, slot, row);
      const int64_t at = (max(from, int64_t{0}) * p.kv_heads + kv_head) * D + chunk * 8;
      const uint32_t to = tile_address<D>(keys, row, chunk);
      copy_async(to, static_cast<const T*>(p.k_cache) + at, from >= 0);
      copy_async(to + Shape::kTileBytes, static_cast<const T*>(p.v_cache) + at, from >= 0);
    }
  };

  const int tiles = span.end > span.begin ? (span.end - span.begin + kKeys - 1) / kKeys : 0;
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (warp + stage * kWarps < tiles) fetch(look_up(warp + stage * kWarps), stage);
    commit_copies();
  }
  int64_t next = look_up(warp + (kStages - 1) * kWarps);

  Matrices q[D / 16];
#pragma unroll
  for (int k = 0; k < D / 16; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i % 2 * 8, col = k * 16 + lane % 4 * 2 + i / 2 * 8;
      const T* from = static_cast<const T*>(p.q) + blockIdx.y * p.q_token_stride +
                      (first_head + row) * p.q_head_stride + col;
      q[k][i] = row < heads ? *reinterpret_cast<const uint32_t*>(from) : 0;
    }

  float acc[D / 8][4] = {};
  float best[2] = {-INFINITY, -INFINITY}, total[2] = {};
  int stage = 0;
  for (int tile = warp; tile < tiles; tile += kWarps) {
    wait_copies<kStages - 2>();
    __syncwarp();
    {  // the stage read in the previous iteration is free
      const int ahead = tile + (kStages - 1) * kWarps;
      if (ahead < tiles) fetch(next, (stage + kStages - 1) % kStages);
      commit_copies();
      next = look_up(ahead + kWarps);
    }
    const uint32_t keys = mine + stage * 2 * Shape::kTileBytes;
    const uint32_t values = keys + Shape::kTileBytes;
    float scores[kKeys / 8][4] = {};
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        Matrices right;
        load_right_transposed<D>(right, keys, n * 16, k);
        multiply<T>(scores[2 * n], q[k], right[0], right[1]);
        multiply<T>(scores[2 * n + 1], q[k], right[2], right[3]);
      }
    const int token = span.begin + tile * kKeys + lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float peak = best[half];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = scores[n][2 * half + i];
          score = token + n * 8 + i < span.end ? bend(p, score) : -INFINITY;
          peak = fmaxf(peak, score);
        }
      peak = row_max(peak);  // finite: a tile has at least one token
      const float shrink = power_of_two(best[half] - peak);
      best[half] = peak;
      total[half] *= shrink;
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        acc[n][2 * half] *= shrink;
        acc[n][2 * half + 1] *= shrink;
      }
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = scores[n][2 * half + i];
          score = power_of_two(score - peak);
          total[half] += score;
        }
    }
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      Matrices left;
      as_left<T>(left, scores[2 * k], scores[2 * k + 1]);
#pragma unroll
      for (int n = 0; n < D / 16; ++n) {
        Matrices right;
        load_right<D>(right, values, k * 16, n);
        multiply<T>(acc[2 * n], left, right[0], right[1]);
        multiply<T>(acc[2 * n + 1], left, right[2], right[3]);
      }
    }
    __syncwarp();
    stage = (stage + 1) % kStages;
  }

  wait_copies<0>();
  __syncthreads();  // the pipelines' memory is reused for the exchange
  float* exchange = reinterpret_cast<float*>(memory);
  float* sums = exchange + 2 * kWarps * kHeads;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp * kHeads + lane / 4 + half * 8;
    const float sum = row_sum(total[half]);
    if (lane / 4 + half * 8 >= heads) continue;
    if (lane % 4 == 0) {
      exchange[row] = best[half];
      exchange[kWarps * kHeads + row] = sum;
    }
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        sums[row * D + n * 8 + lane % 4 * 2 + i] = acc[n][2 * half + i];
  }
  __syncthreads();
  join<T, D, kHeads, kWarps>(p, exchange, first_head, heads);
}

// float32: a warp takes one token at a time, D / 32 columns per lane.
template <int D>
__global__ void __launch_bounds__(kPlainWarps* kWarp) paged_plain_kernel(PagedAttention p) {
  constexpr int kCols = D / kWarp;
  using Row = Pack<float, kCols < 4 ? kCols : 4>;
  constexpr int kRows = kCols * sizeof(float) / sizeof(Row);
  __shared__ float exchange[kPlainWarps * kPlainHeads * (D + 2)];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int group = p.q_heads / p.kv_heads;
  const int blocks = (group + kPlainHeads - 1) / kPlainHeads;
  const int kv_head = blockIdx.x / blocks;
  const int64_t first_head = kv_head * group + blockIdx.x % blocks * kPlainHeads;
  const int heads =
      min(kPlainHeads, group - static_cast<int>(blockIdx.x % blocks) * kPlainHeads);
  const Span span = span_of(p, 1);
  const int32_t* table = p.block_tables + blockIdx.y * p.table_stride;
  const int page_size = p.page_size;
  auto column = [&](int i) { return (i / Row::kSize * kWarp + lane) * Row::kSize + i % Row::kSize; };

  float q[kPlainHeads][kCols], acc[kPlainHeads][kCols] = {};
  float best[kPlainHeads], total[kPlainHeads] = {};
#pragma unroll
  for (int head = 0; head < kPlainHeads; ++head) {
    best[head] = -INFINITY;
    const float* from = static_cast<const float*>(p.q) + blockIdx.y * p.q_token_stride +
                        (first_head + head) * p.q_head_stride;
#pragma unroll
    for (int i = 0; i < kCols; ++i) q[head][i] = head < heads ? from[column(i)] : 0.f;
  }
  for (int token = span.begin + warp; token < span.end; token += kPlainWarps) {
    const int64_t slot =
        table[token / page_size] * static_cast<int64_t>(page_size) + token % page_size;
    const int64_t at = (slot * p.kv_heads + kv_head) * D;
    Row k[kRows], v[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t from = at + (r * kWarp + lane) * Row::kSize;
      k[r] = Row::load(static_cast<const float*>(p.k_cache) + from);
      v[r] = Row::load(static_cast<const float*>(p.v_cache) + from);
    }
#pragma unroll
    for (int head = 0; head < kPlainHeads; ++head) {
      float score = 0;
#pragma unroll
      for (int i = 0; i < kCols; ++i)
        score += q[head][i] * k[i / Row::kSize].at[i % Row::kSize];
      score = bend(p, warp_sum(score));
      const float peak = fmaxf(best[head], score);
      const float shrink = exp2f(best[head] - peak), share = exp2f(score - peak);
#pragma unroll
      for (int i = 0; i < kCols; ++i)
        acc[head][i] = acc[head][i] * shrink + share * v[i / Row::kSize].at[i % Row::kSize];
      total[head] = total[head] * shrink + share;
      best[head] = peak;
    }
  }
#pragma unroll
  for (int head = 0; head < kPlainHeads; ++head) {
    const int row = warp * kPlainHeads + head;
    if (lane == 0) {
      exchange[row] = best[head];
      exchange[kPlainWarps * kPlainHeads + row] = total[head];
    }
#pragma unroll
    for (int i = 0; i < kCols; ++i)
      exchange[2 * kPlainWarps * kPlainHeads + row * D + column(i)] = acc[head][i];
  }
  __syncthreads();
  join<float, D, kPlainHeads, kPlainWarps>(p, exchange, first_head, heads);
}

// out = sum over parts of part * 2^(lse - peak), divided by the sum of those factors.
template <class T>
__global__ void reduce_kernel(PagedAttention p) {
  const int64_t row = blockIdx.x;
  const int lane = threadIdx.x % kWarp, col = threadIdx.x;
  const float* lse = p.lse + row * p.splits;
  const float* part = p.part + row * p.splits * p.dim + col;
  // lane l has parts l and l + 32; there are at most 64
  const float low = lane < p.splits ? lse[lane] : -INFINITY;
  const float high = lane + kWarp < p.splits ? lse[lane + kWarp] : -INFINITY;
  const float peak = warp_max(fmaxf(low, high));
  const float share_low = low == -INFINITY ? 0.f : exp2f(low - peak);
  const float share_high = high == -INFINITY ? 0.f : exp2f(high - peak);
  const float total = warp_sum(share_low + share_high);
  float value = 0;
#pragma unroll 8
  for (int i = 0; i < p.splits; ++i) {
    const float share = __shfl_sync(kAll, i < kWarp ? share_low : share_high, i % kWarp);
    const float x = part[static_cast<int64_t>(i) * p.dim];
    if (share > 0) value += share * x;  // a part without tokens holds arbitrary values
  }
  static_cast<T*>(p.out)[row * p.dim + col] = from_float<T>(total > 0 ? value / total : 0.f);
}

template <class T, int D>
void launch(const PagedAttention& p, cudaStream_t stream) {
  constexpr bool kPlain = std::is_same_v<T, float>;
  const int64_t heads = kPlain ? kPlainHeads : kHeads;
  const dim3 grid(p.kv_heads * ceil_div(p.q_heads / p.kv_heads, heads), p.batch, p.splits);
  if constexpr (kPlain) {
    paged_plain_kernel<D><<<grid, kPlainWarps * kWarp, 0, stream>>>(p);
  } else {
    allow_shared(paged_mma_kernel<T, D>, Tiles<D>::kBytes);
    paged_mma_kernel<T, D><<<grid, Tiles<D>::kWarps * kWarp, Tiles<D>::kBytes, stream>>>(p);
  }
  if (p.splits > 1) reduce_kernel<T><<<p.batch * p.q_heads, D, 0, stream>>>(p);
}

}  // namespace

void run(const PagedAttention& p, Stream stream) {
  with_type(p.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto on = static_cast<cudaStream_t>(stream);
    switch (p.dim) {
      case 64:
        return launch<T, 64>(p, on);
      case 128:
        return launch<T, 128>(p, on);
      case 256:
        return launch<T, 256>(p, on);
      default:
        throw std::invalid_argument("yaie: paged attention on CUDA wants heads of 64, 128 or 256");
    }
  });
}

}  // namespace yaie::cuda
