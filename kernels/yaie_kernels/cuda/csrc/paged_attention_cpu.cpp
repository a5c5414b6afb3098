#include <algorithm>
#include <cmath>
#include <vector>

#include "yaie/cpu.h"

namespace yaie::cpu {
namespace {

// One query head over the tokens [first, length) of a sequence, with an online softmax (Milakov &
// Gimelshein 2018, arXiv:1805.02867).
template <class T>
void attend(const PagedAttention& p, const T* q, const int32_t* table, int64_t kv_head,
            int64_t first, int64_t length, T* out) {
  std::vector<Wide<T>> acc(p.dim, 0);
  Wide<T> best = -INFINITY, total = 0;
  for (int64_t token = first; token < length; ++token) {
    const int64_t slot = table[token / p.page_size] * p.page_size + token % p.page_size;
    const int64_t at = (slot * p.kv_heads + kv_head) * p.dim;
    Wide<T> score = dot(q, static_cast<const T*>(p.k_cache) + at, p.dim) * p.scale;
    if (p.softcap != 0) score = p.softcap * std::tanh(score / p.softcap);
    const Wide<T> peak = std::max(best, score);
    const Wide<T> shrink = std::exp(best - peak), share = std::exp(score - peak);
    const T* v = static_cast<const T*>(p.v_cache) + at;
    for (int64_t i = 0; i < p.dim; ++i) acc[i] = acc[i] * shrink + share * wide(v[i]);
    total = total * shrink + share;
    best = peak;
  }
  for (int64_t i = 0; i < p.dim; ++i) out[i] = static_cast<T>(acc[i] / total);
}

}  // namespace

void run(const PagedAttention& p) {
  with_type(p.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const int64_t group = p.q_heads / p.kv_heads;
    for (int64_t row = 0; row < p.batch; ++row) {
      const int64_t length = p.seq_lens[row];
      const int64_t first = p.window ? std::max<int64_t>(length - p.window, 0) : 0;
      for (int64_t head = 0; head < p.q_heads; ++head)
        attend(p, static_cast<const T*>(p.q) + row * p.q_token_stride + head * p.q_head_stride,
               p.block_tables + row * p.table_stride, head / group, first, length,
               static_cast<T*>(p.out) + (row * p.q_heads + head) * p.dim);
    }
  });
}

}  // namespace yaie::cpu
