#include <algorithm>
#include <cmath>
#include <vector>

#include "yaie/cpu.h"

namespace yaie::cpu {
namespace {

// Number of keys that query `token` sees.
template <class Params>
int64_t seen(const Params& p, int64_t token) {
  return p.causal ? std::max<int64_t>(token + 1 + p.kv_len - p.q_len, 0) : p.kv_len;
}

template <class T>
void forward_row(const FlashForward& p, int64_t batch, int64_t head, int64_t token) {
  using W = Wide<T>;
  const int64_t kv_head = head / (p.q_heads / p.kv_heads);
  const int64_t at = (batch * p.q_heads + head) * p.q_len + token;
  const T* q = row<T>(p.q, batch, head, token);
  std::vector<W> acc(p.dim, 0);
  W best = -INFINITY, total = 0;
  for (int64_t key = 0; key < seen(p, token); ++key) {
    const W score = dot(q, row<T>(p.k, batch, kv_head, key), p.dim) * static_cast<W>(p.scale);
    const W peak = std::max(best, score);
    const W shrink = std::exp(best - peak), share = std::exp(score - peak);
    const T* v = row<T>(p.v, batch, kv_head, key);
    for (int64_t i = 0; i < p.dim; ++i) acc[i] = acc[i] * shrink + share * wide(v[i]);
    total = total * shrink + share;
    best = peak;
  }
  T* out = static_cast<T*>(p.out) + at * p.dim;
  for (int64_t i = 0; i < p.dim; ++i) out[i] = static_cast<T>(total > 0 ? acc[i] / total : W(0));
  static_cast<W*>(p.lse)[at] = best + std::log(total);  // -inf if the query sees no key
}

// Gradients of one batch and KV head, summed in float (or double) and rounded once.
template <class T>
void backward_head(const FlashBackward& p, int64_t batch, int64_t kv_head) {
  using W = Wide<T>;
  const int64_t group = p.q_heads / p.kv_heads;
  const W scale = static_cast<W>(p.scale);
  std::vector<W> grad_k(p.kv_len * p.dim, 0), grad_v(p.kv_len * p.dim, 0), grad_q(p.dim);
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
    for (int64_t token = 0; token < p.q_len; ++token) {
      const int64_t at = (batch * p.q_heads + head) * p.q_len + token;
      const T* q = row<T>(p.q, batch, head, token);
      const T* grad_out = static_cast<const T*>(p.grad_out) + at * p.dim;
      const W delta = dot(grad_out, static_cast<const T*>(p.out) + at * p.dim, p.dim);
      const W lse = static_cast<const W*>(p.lse)[at];
      std::fill(grad_q.begin(), grad_q.end(), W(0));
      for (int64_t key = 0; key < seen(p, token); ++key) {
        const T* k = row<T>(p.k, batch, kv_head, key);
        const T* v = row<T>(p.v, batch, kv_head, key);
        const W share = std::exp(dot(q, k, p.dim) * scale - lse);
        const W slope = share * (dot(grad_out, v, p.dim) - delta) * scale;
        for (int64_t i = 0; i < p.dim; ++i) {
          grad_q[i] += slope * wide(k[i]);
          grad_k[key * p.dim + i] += slope * wide(q[i]);
          grad_v[key * p.dim + i] += share * wide(grad_out[i]);
        }
      }
      T* stored = static_cast<T*>(p.grad_q) + at * p.dim;
      for (int64_t i = 0; i < p.dim; ++i) stored[i] = static_cast<T>(grad_q[i]);
    }
  const int64_t at = (batch * p.kv_heads + kv_head) * p.kv_len * p.dim;
  for (int64_t i = 0; i < p.kv_len * p.dim; ++i) {
    static_cast<T*>(p.grad_k)[at + i] = static_cast<T>(grad_k[i]);
    static_cast<T*>(p.grad_v)[at + i] = static_cast<T>(grad_v[i]);
  }
}

}  // namespace

void run(const FlashForward& p) {
  with_type(p.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for (int64_t batch = 0; batch < p.batch; ++batch)
      for (int64_t head = 0; head < p.q_heads; ++head)
        for (int64_t token = 0; token < p.q_len; ++token) forward_row<T>(p, batch, head, token);
  });
}

void run(const FlashBackward& p) {
  with_type(p.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for (int64_t batch = 0; batch < p.batch; ++batch)
      for (int64_t head = 0; head < p.kv_heads; ++head) backward_head<T>(p, batch, head);
  });
}

}  // namespace yaie::cpu
