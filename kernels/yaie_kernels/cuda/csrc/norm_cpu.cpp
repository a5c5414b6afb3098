#include <cmath>

#include "yaie/cpu.h"

namespace yaie::cpu {

void run(const RmsNorm& p) {
  with_type(p.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const T* weight = static_cast<const T*>(p.weight);
    for (int64_t row = 0; row < p.tokens * p.heads; ++row) {
      const int64_t token = row / p.heads, head = row % p.heads;
      const T* x = static_cast<const T*>(p.x) + token * p.x_token_stride + head * p.x_head_stride;
      if (p.residual) {
        const T* residual = static_cast<const T*>(p.residual) + token * p.residual_stride;
        T* total = static_cast<T*>(p.total) + row * p.cols;
        for (int64_t i = 0; i < p.cols; ++i)
          total[i] = static_cast<T>(wide(x[i]) + wide(residual[i]));
        x = total;
      }
      T* out = static_cast<T*>(p.out) + row * p.cols;
      const Wide<T> scale = 1 / std::sqrt(dot(x, x, p.cols) / p.cols + p.eps);
      for (int64_t i = 0; i < p.cols; ++i)
        out[i] = static_cast<T>(wide(x[i]) * scale * (wide(weight[i]) + p.offset));
    }
  });
}

}  // namespace yaie::cpu
