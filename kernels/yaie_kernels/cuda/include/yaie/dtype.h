// Element types of tensors, and the switch from a run-time type to a compile-time one.
#pragma once

#include <stdexcept>
#include <type_traits>

namespace yaie {

enum class DType { f64, f32, f16, bf16 };

template <class T>
struct Type {
  using type = T;
};

// A list of C++ types, one per DType; `void` where a device has no implementation.
template <class F64, class F32, class F16, class BF16, class Body>
void switch_dtype(DType dtype, Body body) {
  switch (dtype) {
    case DType::f64:
      if constexpr (!std::is_void_v<F64>) return body(Type<F64>{});
      break;
    case DType::f32:
      if constexpr (!std::is_void_v<F32>) return body(Type<F32>{});
      break;
    case DType::f16:
      if constexpr (!std::is_void_v<F16>) return body(Type<F16>{});
      break;
    case DType::bf16:
      if constexpr (!std::is_void_v<BF16>) return body(Type<BF16>{});
      break;
  }
  throw std::invalid_argument("yaie: no kernel for this dtype on this device");
}

}  // namespace yaie
