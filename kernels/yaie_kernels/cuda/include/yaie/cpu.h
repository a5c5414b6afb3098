// Scalars of the CPU versions: half types are computed in float and rounded once, when stored.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "yaie/ops.h"

namespace yaie::cpu {

template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class Body>
void with_type(DType dtype, Body body) {
  switch_dtype<double, float, c10::Half, c10::BFloat16>(dtype, body);
}

template <class T>
Wide<T> wide(T value) {
  return static_cast<Wide<T>>(value);
}

template <class T>
const T* row(const Heads& x, int64_t batch, int64_t head, int64_t token) {
  return static_cast<const T*>(x.data) + batch * x.batch_stride + head * x.head_stride +
         token * x.token_stride;
}

// Dot product in sixteen parallel sums: more exact than one long sum, and vectorised by the
// compiler.
template <class T>
Wide<T> dot(const T* a, const T* b, int64_t size) {
  constexpr int64_t kSums = 16;
  Wide<T> sums[kSums] = {};
  const int64_t whole = size / kSums * kSums;
  for (int64_t i = 0; i < whole; i += kSums)
    for (int64_t j = 0; j < kSums; ++j) sums[j] += wide(a[i + j]) * wide(b[i + j]);
  for (int64_t i = whole; i < size; ++i) sums[i - whole] += wide(a[i]) * wide(b[i]);
  for (int64_t step = kSums / 2; step; step /= 2)
    for (int64_t j = 0; j < step; ++j) sums[j] += sums[j + step];
  return sums[0];
}

}  // namespace yaie::cpu
