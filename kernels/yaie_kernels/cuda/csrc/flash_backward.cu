// Gradients of FlashAttention-2 (Dao 2023, arXiv:2307.08691) on tensor cores. Each pass writes every
// element once, without atomic additions, so the result is the same in every run: one pass over
// blocks of queries for grad_q, one over blocks of keys for grad_k and grad_v (two if both sums do
// not fit in the registers).
//
// With s = scale q k^T, p = exp(s - lse), delta = sum(grad_out * out):
//   grad_v = p^T grad_out,  ds = p * (grad_out v^T - delta),
//   grad_q = scale ds k,    grad_k = scale ds^T q.
// All passes are one kernel: a block keeps its own rows (q and grad_out, or k and v) in shared
// memory and walks tiles of the other side, with s and ds transposed where rows are keys.
#include "yaie/flash.cuh"

namespace yaie::cuda {
namespace {

enum class Pass { kGradQ, kGradKV, kGradK, kGradV };

constexpr bool rows_are_keys(Pass pass) { return pass != Pass::kGradQ; }
constexpr bool wants_first(Pass pass) { return pass != Pass::kGradV; }  // grad_q or grad_k
constexpr bool wants_second(Pass pass) { return pass == Pass::kGradKV || pass == Pass::kGradV; }

template <int D>
struct Backward {
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kRows = kWarps * 16;
  static constexpr int kOther = D == 256 ? 32 : 64;  // rows per tile of the other side
  static constexpr int kRowBytes = kRows * D * 2;
  static constexpr int kTileBytes = kOther * D * 2;
  static constexpr int kBytes = 2 * kRowBytes + 4 * kTileBytes + 2 * 2 * kOther * 4;
};

template <class T, int D, Pass PASS>
__global__ void __launch_bounds__(Backward<D>::kThreads) flash_backward_kernel(FlashBackward p) {
  using Shape = Backward<D>;
  constexpr int kOther = Shape::kOther, kThreads = Shape::kThreads;
  constexpr bool kKeyRows = rows_are_keys(PASS);
  constexpr bool kFirst = wants_first(PASS), kSecond = wants_second(PASS);
  extern __shared__ __align__(128) unsigned char memory[];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int q_len = p.q_len, kv_len = p.kv_len, context = kv_len - q_len;
  const int group = p.q_heads / p.kv_heads;
  const int batch = blockIdx.z;
  // start the blocks with the most tiles first: the last queries, the first keys
  const int block = kKeyRows ? blockIdx.x : gridDim.x - 1 - blockIdx.x;
  const int first = block * Shape::kRows;
  const int row = warp * 16;  // the warp's first row in the block
  const int kv_head = kKeyRows ? blockIdx.y : blockIdx.y / group;
  const int row_limit = kKeyRows ? kv_len : q_len, other_limit = kKeyRows ? q_len : kv_len;

  const uint32_t rows1 = shared_address(memory);         // q or k
  const uint32_t rows2 = rows1 + Shape::kRowBytes;       // grad_out or v
  const uint32_t stages = rows2 + Shape::kRowBytes;      // twice: (k, v) or (q, grad_out)
  float* const sums = reinterpret_cast<float*>(memory + 2 * Shape::kRowBytes +
                                               4 * Shape::kTileBytes);  // twice: (lse, delta)
  const float factor = static_cast<float>(p.scale) * kLog2e;

  const T* k = head_of<T>(p.k, batch, kv_head);
  const T* v = head_of<T>(p.v, batch, kv_head);
  auto line = [&](int head) { return (static_cast<int64_t>(batch) * p.q_heads + head) * q_len; };
  auto grad_out = [&](int head) { return static_cast<const T*>(p.grad_out) + line(head) * D; };

  // Tiles of the other side, [begin, end) for each query head; several heads where rows are keys.
  int begin = 0, end = (other_limit + kOther - 1) / kOther;
  if (p.causal && kKeyRows) begin = min(max(first - context, 0) / kOther, end);
  if (p.causal && !kKeyRows) {
    const int seen = min(first + Shape::kRows, q_len) + context;
    end = min((max(seen, 0) + kOther - 1) / kOther, end);
  }
  const int first_head = kKeyRows ? kv_head * group : blockIdx.y;
  const int each = end - begin;
  const int rounds = each * (kKeyRows ? group : 1);

  auto fetch = [&](int round) {
    const int head = first_head + round / each, at = (begin + round % each) * kOther;
    const uint32_t tile = stages + round % 2 * 2 * Shape::kTileBytes;
    if constexpr (kKeyRows) {
      fetch_tile<T, D, kOther, kThreads>(tile, head_of<T>(p.q, batch, head), p.q.token_stride, at,
                                         q_len);
      fetch_tile<T, D, kOther, kThreads>(tile + Shape::kTileBytes, grad_out(head), D, at, q_len);
      float* to = sums + round % 2 * 2 * kOther;
      for (int i = threadIdx.x; i < kOther; i += kThreads) {
        const bool here = at + i < q_len;
        const float lse = here ? static_cast<const float*>(p.lse)[line(head) + at + i] : 0.f;
        to[i] = lse == -INFINITY ? 0.f : lse * kLog2e;
        to[kOther + i] = here ? static_cast<const float*>(p.delta)[line(head) + at + i] : 0.f;
      }
    } else {
      fetch_tile<T, D, kOther, kThreads>(tile, k, p.k.token_stride, at, kv_len);
      fetch_tile<T, D, kOther, kThreads>(tile + Shape::kTileBytes, v, p.v.token_stride, at, kv_len);
    }
  };

  if constexpr (kKeyRows) {
    fetch_tile<T, D, Shape::kRows, kThreads>(rows1, k, p.k.token_stride, first, kv_len);
    fetch_tile<T, D, Shape::kRows, kThreads>(rows2, v, p.v.token_stride, first, kv_len);
  } else {
    fetch_tile<T, D, Shape::kRows, kThreads>(rows1, head_of<T>(p.q, batch, first_head),
                                             p.q.token_stride, first, q_len);
    fetch_tile<T, D, Shape::kRows, kThreads>(rows2, grad_out(first_head), D, first, q_len);
  }
  float own_lse[2] = {}, own_delta[2] = {};
  if constexpr (!kKeyRows)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = first + row + lane / 4 + half * 8;
      if (token >= q_len) continue;
      const float lse = static_cast<const float*>(p.lse)[line(first_head) + token];
      own_lse[half] = lse == -INFINITY ? 0.f : lse * kLog2e;
      own_delta[half] = static_cast<const float*>(p.delta)[line(first_head) + token];
    }
  if (rounds > 0) fetch(0);
  commit_copies();

  float acc1[kFirst ? D / 8 : 1][4] = {}, acc2[kSecond ? D / 8 : 1][4] = {};
  for (int round = 0; round < rounds; ++round) {
    wait_copies<0>();
    __syncthreads();
    if (round + 1 < rounds) fetch(round + 1);
    commit_copies();
    const uint32_t tile1 = stages + round % 2 * 2 * Shape::kTileBytes;
    const uint32_t tile2 = tile1 + Shape::kTileBytes;
    const float* other_lse = sums + round % 2 * 2 * kOther;
    const float* other_delta = other_lse + kOther;
    const int at = (begin + round % each) * kOther;

    float p_[kOther / 8][4] = {}, ds[kFirst ? kOther / 8 : 1][4] = {};
#pragma unroll
    for (int d = 0; d < D / 16; ++d) {
      Matrices left1, left2;
      load_left<D>(left1, rows1, row, d);
      if constexpr (kFirst) load_left<D>(left2, rows2, row, d);
#pragma unroll
      for (int n = 0; n < kOther / 16; ++n) {
        Matrices right;
        load_right_transposed<D>(right, tile1, n * 16, d);
        multiply<T>(p_[2 * n], left1, right[0], right[1]);
        multiply<T>(p_[2 * n + 1], left1, right[2], right[3]);
        if constexpr (kFirst) {
          load_right_transposed<D>(right, tile2, n * 16, d);
          multiply<T>(ds[2 * n], left2, right[0], right[1]);
          multiply<T>(ds[2 * n + 1], left2, right[2], right[3]);
        }
      }
    }

    // whether any pair in this warp's tile is out of bounds or masked
    const bool edge = first + row + 16 > row_limit || at + kOther > other_limit ||
                      (p.causal && (kKeyRows ? first + row + 15 > at + context
                                             : at + kOther - 1 > first + row + context));
#pragma unroll
    for (int n = 0; n < kOther / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int own = first + row + lane / 4 + i / 2 * 8;
        const int col = n * 8 + lane % 4 * 2 + i % 2, other = at + col;
        const int query = kKeyRows ? other : own, key = kKeyRows ? own : other;
        const bool seen = !edge || (query < q_len && key < kv_len &&
                                    (!p.causal || key <= query + context));
        const float lse = kKeyRows ? other_lse[col] : own_lse[i / 2];
        const float share = seen ? power_of_two(p_[n][i] * factor - lse) : 0.f;
        p_[n][i] = share;
        if constexpr (kFirst)
          ds[n][i] = share * (ds[n][i] - (kKeyRows ? other_delta[col] : own_delta[i / 2]));
      }

#pragma unroll
    for (int n = 0; n < kOther / 16; ++n) {
      Matrices left1, left2;
      if constexpr (kFirst) as_left<T>(left1, ds[2 * n], ds[2 * n + 1]);
      if constexpr (kSecond) as_left<T>(left2, p_[2 * n], p_[2 * n + 1]);
#pragma unroll
      for (int d = 0; d < D / 16; ++d) {
        Matrices right;
        if constexpr (kFirst) {
          load_right<D>(right, tile1, n * 16, d);
          multiply<T>(acc1[2 * d], left1, right[0], right[1]);
          multiply<T>(acc1[2 * d + 1], left1, right[2], right[3]);
        }
        if constexpr (kSecond) {
          load_right<D>(right, tile2, n * 16, d);
          multiply<T>(acc2[2 * d], left2, right[0], right[1]);
          multiply<T>(acc2[2 * d + 1], left2, right[2], right[3]);
        }
      }
    }
  }
  wait_copies<0>();

  const float scale = static_cast<float>(p.scale);
  const int64_t heads = kKeyRows ? p.kv_heads : p.q_heads;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int token = first + row + lane / 4 + half * 8;
    if (token >= row_limit) continue;
    const int64_t to = ((batch * heads + blockIdx.y) * row_limit + token) * D + lane % 4 * 2;
    T* out1 = static_cast<T*>(kKeyRows ? p.grad_k : p.grad_q) + to;
    T* out2 = static_cast<T*>(p.grad_v) + to;
#pragma unroll
    for (int d = 0; d < D / 8; ++d) {
      if constexpr (kFirst)
        *reinterpret_cast<uint32_t*>(out1 + d * 8) =
            pack_two<T>(acc1[d][2 * half] * scale, acc1[d][2 * half + 1] * scale);
      if constexpr (kSecond)
        *reinterpret_cast<uint32_t*>(out2 + d * 8) =
            pack_two<T>(acc2[d][2 * half], acc2[d][2 * half + 1]);
    }
  }
}

template <class T, int D, Pass PASS>
void launch_pass(const FlashBackward& p, cudaStream_t stream) {
  using Shape = Backward<D>;
  allow_shared(flash_backward_kernel<T, D, PASS>, Shape::kBytes);
  const bool keys = rows_are_keys(PASS);
  const dim3 grid(ceil_div(keys ? p.kv_len : p.q_len, Shape::kRows),
                  keys ? p.kv_heads : p.q_heads, p.batch);
  flash_backward_kernel<T, D, PASS><<<grid, Shape::kThreads, Shape::kBytes, stream>>>(p);
}

template <class T, int D>
void launch(const FlashBackward& p, cudaStream_t stream) {
  launch_delta<T>(p, stream);
  launch_pass<T, D, Pass::kGradQ>(p, stream);
  if constexpr (D == 256) {
    launch_pass<T, D, Pass::kGradK>(p, stream);
    launch_pass<T, D, Pass::kGradV>(p, stream);
  } else {
    launch_pass<T, D, Pass::kGradKV>(p, stream);
  }
}

}  // namespace

void run(const FlashBackward& p, Stream stream) {
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
