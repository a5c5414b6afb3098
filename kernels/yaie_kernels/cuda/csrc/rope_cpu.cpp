#include "yaie/cpu.h"

namespace yaie::cpu {
namespace {

template <class T>
void rotate(T* left, const float* cos, int64_t half) {
  const float* sin = cos + half;
  for (int64_t i = 0; i < half; ++i) {
    const Wide<T> x = wide(left[i]), y = wide(left[half + i]);
    left[i] = static_cast<T>(x * cos[i] - y * sin[i]);
    left[half + i] = static_cast<T>(y * cos[i] + x * sin[i]);
  }
}

}  // namespace

void run(const Rope& p) {
  with_type(p.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for (int64_t token = 0; token < p.tokens; ++token) {
      const float* cos = p.cos_sin + p.positions[token] * 2 * p.half;
      for (int64_t head = 0; head < p.q_heads; ++head)
        rotate(static_cast<T*>(p.q) + token * p.q_token_stride + head * p.q_head_stride, cos,
               p.half);
      for (int64_t head = 0; head < p.k_heads; ++head)
        rotate(static_cast<T*>(p.k) + token * p.k_token_stride + head * p.k_head_stride, cos,
               p.half);
    }
  });
}

}  // namespace yaie::cpu
