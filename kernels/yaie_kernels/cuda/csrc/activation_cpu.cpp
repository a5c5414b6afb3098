#include <cmath>

#include "yaie/cpu.h"

namespace yaie::cpu {

void run(const SiluMul& p) {
  with_type(p.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for (int64_t row = 0; row < p.rows; ++row) {
      const T* gate = static_cast<const T*>(p.gate_up) + row * p.row_stride;
      T* out = static_cast<T*>(p.out) + row * p.cols;
      for (int64_t i = 0; i < p.cols; ++i) {
        const Wide<T> x = wide(gate[i]);
        out[i] = static_cast<T>(x / (1 + std::exp(-x)) * wide(gate[p.cols + i]));
      }
    }
  });
}

}  // namespace yaie::cpu
