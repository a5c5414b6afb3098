// torch.ops.yaie.*: checks arguments, allocates results, and passes raw pointers to the CPU or CUDA
// version. Shapes and meanings: yaie_kernels/ops.py. No other file includes torch.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>

#include "yaie/ops.h"

#ifdef YAIE_WITH_CUDA
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace yaie {
namespace {

using at::Tensor;

DType dtype_of(const Tensor& x) {
  switch (x.scalar_type()) {
    case at::kDouble:
      return DType::f64;
    case at::kFloat:
      return DType::f32;
    case at::kHalf:
      return DType::f16;
    case at::kBFloat16:
      return DType::bf16;
    default:
      TORCH_CHECK(false, "want float64, float32, float16 or bfloat16, not ", x.scalar_type());
  }
}

template <class Params>
void launch(const Tensor& on, const Params& params) {
  if (!on.is_cuda()) return cpu::run(params);
#ifdef YAIE_WITH_CUDA
  const c10::cuda::CUDAGuard guard(on.device());
  cuda::run(params, c10::cuda::getCurrentCUDAStream().stream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
#endif
}

// Formats numbers for messages: `<<` of an integer crashed if torch brought its own libstdc++.
std::string text(int64_t number) { return std::to_string(number); }

void check_rows(const char* name, const Tensor& x, int64_t dims) {
  TORCH_CHECK(x.dim() == dims, name, ": want ", text(dims), " dimensions, not ", text(x.dim()));
  TORCH_CHECK(x.size(-1) <= 1 || x.stride(-1) == 1, name, ": the last dimension is not contiguous");
}

void check_like(const char* name, const Tensor& x, const Tensor& like) {
  TORCH_CHECK(x.scalar_type() == like.scalar_type(), name, " is ", x.scalar_type(), ", want ",
              like.scalar_type());
  TORCH_CHECK(x.device() == like.device(), name, " is on ", x.device(), ", want ", like.device());
}

void check_index(const char* name, const Tensor& x, at::ScalarType dtype, int64_t size) {
  TORCH_CHECK(x.scalar_type() == dtype && x.dim() == 1 && x.is_contiguous(), name, ": want ",
              dtype, " in one contiguous dimension");
  TORCH_CHECK(x.size(0) == size, name, ": want ", text(size), " entries, not ", text(x.size(0)));
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, double offset) {
  TORCH_CHECK(x.dim() == 2 || x.dim() == 3, "x: want [T,H] or [T,heads,D]");
  check_rows("x", x, x.dim());
  check_like("weight", weight, x);
  TORCH_CHECK(weight.is_contiguous() && weight.numel() == x.size(-1), "weight: want ", text(x.size(-1)));
  const bool heads = x.dim() == 3;
  Tensor out = at::empty(x.sizes(), x.options());
  if (out.numel() == 0) return out;
  launch(x, RmsNorm{x.const_data_ptr(), nullptr, weight.const_data_ptr(), out.mutable_data_ptr(),
                    nullptr, x.size(0), heads ? x.size(1) : 1, x.size(-1), x.stride(0),
                    heads ? x.stride(1) : 0, 0, static_cast<float>(eps),
                    static_cast<float>(offset), dtype_of(x)});
  return out;
}

std::tuple<Tensor, Tensor> add_rms_norm(const Tensor& x, const Tensor& residual,
                                        const Tensor& weight, double eps, double offset) {
  check_rows("x", x, 2);
  check_rows("residual", residual, 2);
  check_like("residual", residual, x);
  check_like("weight", weight, x);
  TORCH_CHECK(residual.sizes() == x.sizes(), "residual: want the shape of x");
  TORCH_CHECK(weight.is_contiguous() && weight.numel() == x.size(1), "weight: want ", text(x.size(1)));
  Tensor out = at::empty(x.sizes(), x.options());
  Tensor total = at::empty(x.sizes(), x.options());
  if (out.numel() != 0)
    launch(x, RmsNorm{x.const_data_ptr(), residual.const_data_ptr(), weight.const_data_ptr(),
                      out.mutable_data_ptr(), total.mutable_data_ptr(), x.size(0), 1, x.size(1),
                      x.stride(0), 0, residual.stride(0), static_cast<float>(eps),
                      static_cast<float>(offset), dtype_of(x)});
  return {out, total};
}

void rope_(Tensor q, Tensor k, const Tensor& positions, const Tensor& cos_sin) {
  check_rows("q", q, 3);
  check_rows("k", k, 3);
  check_like("k", k, q);
  TORCH_CHECK(k.size(0) == q.size(0), "k: want ", text(q.size(0)), " tokens");
  check_index("positions", positions, at::kLong, q.size(0));
  TORCH_CHECK(cos_sin.scalar_type() == at::kFloat && cos_sin.is_contiguous() &&
                  cos_sin.dim() == 2 && cos_sin.size(1) % 2 == 0,
              "cos_sin: want contiguous float32 [positions, R], R even");
  TORCH_CHECK(cos_sin.size(1) <= q.size(2) && cos_sin.size(1) <= k.size(2), "cos_sin: R > D");
  if (q.size(0) == 0) return;
  launch(q, Rope{q.mutable_data_ptr(), k.mutable_data_ptr(), positions.const_data_ptr<int64_t>(),
                 cos_sin.const_data_ptr<float>(), q.size(0), q.size(1), k.size(1),
                 cos_sin.size(1) / 2, q.stride(0), q.stride(1), k.stride(0), k.stride(1),
                 dtype_of(q)});
}

Tensor silu_mul(const Tensor& gate_up) {
  check_rows("gate_up", gate_up, 2);
  TORCH_CHECK(gate_up.size(1) % 2 == 0, "gate_up: want an even number of columns");
  const int64_t cols = gate_up.size(1) / 2;
  Tensor out = at::empty({gate_up.size(0), cols}, gate_up.options());
  if (out.numel() != 0)
    launch(gate_up, SiluMul{gate_up.const_data_ptr(), out.mutable_data_ptr(), gate_up.size(0),
                            cols, gate_up.stride(0), dtype_of(gate_up)});
  return out;
}

void copy_between(const Tensor& source_cache, const Tensor& target_cache, const Tensor& source,
                  const Tensor& target) {
  TORCH_CHECK(source_cache.is_contiguous() && target_cache.is_contiguous(),
              "caches: want contiguous ones");
  TORCH_CHECK(source_cache.scalar_type() == target_cache.scalar_type() &&
                  source_cache.sizes().slice(1) == target_cache.sizes().slice(1),
              "caches: want blocks of the same dtype and shape");
  check_index("source", source, at::kLong, source.numel());
  check_index("target", target, at::kLong, source.numel());
  TORCH_CHECK(source.device() == target.device(), "source and target: want one device");
  if (source.numel() == 0 || source_cache.numel() == 0) return;
  const int64_t block_bytes =
      source_cache.numel() / source_cache.size(0) * source_cache.element_size();
  launch(source, CopyBlocks{source_cache.const_data_ptr(), target_cache.mutable_data_ptr(),
                            source.const_data_ptr<int64_t>(), target.const_data_ptr<int64_t>(),
                            source.numel(), block_bytes});
}

void copy_blocks(at::TensorList caches, const Tensor& source, const Tensor& target) {
  for (const Tensor& cache : caches) {
    TORCH_CHECK(cache.device() == source.device(), "caches: want the ids' device");
    copy_between(cache, cache, source, target);
  }
}

void swap_blocks(const Tensor& source_cache, Tensor target_cache, const Tensor& source,
                 const Tensor& target) {
  for (const Tensor& cache : {source_cache, target_cache})
    TORCH_CHECK(cache.device() == source.device() || (cache.is_cpu() && cache.is_pinned()),
                "a cache is on ", cache.device(), ", the ids are on ", source.device(),
                ": a host cache must be pinned memory, the ids on the device");
  copy_between(source_cache, target_cache, source, target);
}

// The tensor itself, or a copy if its rows do not begin at multiples of 16 bytes, which the CUDA
// kernels require.
Tensor aligned(const Tensor& x) {
  const int64_t size = x.element_size();
  bool fits = reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
  for (int64_t dim = 0; dim + 1 < x.dim(); ++dim) fits = fits && x.stride(dim) * size % 16 == 0;
  return fits || x.is_cpu() ? x : x.clone(at::MemoryFormat::Contiguous);
}

constexpr int64_t kPrograms = 264;     // two per multiprocessor: with more parts bandwidth falls
constexpr int64_t kLeastTokens = 64;   // smallest share of a part
constexpr int64_t kMostTokens = 2048;  // with longer shares the batch waits for one sequence
constexpr int64_t kMaxSplits = 64;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

Tensor paged_attention(const Tensor& q_in, const Tensor& k_cache, const Tensor& v_cache,
                       const Tensor& block_tables, const Tensor& seq_lens, double scale,
                       int64_t max_seq_len, std::optional<int64_t> window,
                       std::optional<double> softcap, std::optional<int64_t> splits) {
  check_rows("q", q_in, 3);
  const Tensor q = aligned(q_in);
  check_like("k_cache", k_cache, q);
  check_like("v_cache", v_cache, q);
  check_rows("block_tables", block_tables, 2);
  check_index("seq_lens", seq_lens, at::kInt, q.size(0));
  TORCH_CHECK(block_tables.scalar_type() == at::kInt && block_tables.size(0) == q.size(0),
              "block_tables: want int32 [B, max_pages]");
  TORCH_CHECK(k_cache.dim() == 4 && k_cache.is_contiguous() && v_cache.is_contiguous() &&
                  v_cache.sizes() == k_cache.sizes() && k_cache.size(3) == q.size(2),
              "caches: want two contiguous [pages, page_size, Hk, D], D of q");
  const int64_t batch = q.size(0), q_heads = q.size(1), kv_heads = k_cache.size(2);
  TORCH_CHECK(kv_heads > 0 && q_heads % kv_heads == 0, "q: want a multiple of ", text(kv_heads),
              " heads");
  Tensor out = at::empty(q.sizes(), q.options());
  if (out.numel() == 0) return out;
  const int64_t reach = window ? std::min(*window, max_seq_len) : max_seq_len;
  const int64_t filling = ceil_div(kPrograms, std::max<int64_t>(1, batch * kv_heads));
  const int64_t wanted = splits.value_or(
      std::max<int64_t>(1, std::min({filling, ceil_div(reach, kLeastTokens), kMaxSplits})));
  const int64_t parts =
      splits.value_or(std::max(wanted, std::min(ceil_div(reach, kMostTokens), kMaxSplits)));
  TORCH_CHECK(parts >= 1 && parts <= kMaxSplits, "splits: want 1 to 64");
  Tensor part, lse;
  if (q.is_cuda() && parts > 1) {
    part = at::empty({batch, q_heads, parts, q.size(2)}, q.options().dtype(at::kFloat));
    lse = at::empty({batch, q_heads, parts}, q.options().dtype(at::kFloat));
  }
  launch(q, PagedAttention{q.const_data_ptr(), k_cache.const_data_ptr(), v_cache.const_data_ptr(),
                           out.mutable_data_ptr(),
                           part.defined() ? part.mutable_data_ptr<float>() : nullptr,
                           lse.defined() ? lse.mutable_data_ptr<float>() : nullptr,
                           block_tables.const_data_ptr<int32_t>(),
                           seq_lens.const_data_ptr<int32_t>(), batch, q_heads, kv_heads, q.size(2),
                           k_cache.size(1), q.stride(0), q.stride(1), block_tables.stride(0),
                           static_cast<int>(parts), static_cast<int>(wanted),
                           static_cast<int>(window.value_or(0)), static_cast<float>(scale),
                           static_cast<float>(softcap.value_or(0)), dtype_of(q)});
  return out;
}

Heads heads_of(const Tensor& x) {
  return {x.const_data_ptr(), x.stride(0), x.stride(1), x.stride(2)};
}

void check_dense(const Tensor& q, const Tensor& k, const Tensor& v) {
  check_rows("q", q, 4);
  check_rows("k", k, 4);
  check_rows("v", v, 4);
  check_like("k", k, q);
  check_like("v", v, q);
  TORCH_CHECK(k.sizes() == v.sizes() && k.size(0) == q.size(0) && k.size(3) == q.size(3),
              "want q[B,Hq,T,D], k and v [B,Hk,S,D]");
  TORCH_CHECK(k.size(1) > 0 && q.size(1) % k.size(1) == 0, "q: want a multiple of ", text(k.size(1)),
              " heads");
}

at::TensorOptions lse_options(const Tensor& q) {
  return q.options().dtype(q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

std::tuple<Tensor, Tensor> flash_attention_forward(const Tensor& q_in, const Tensor& k_in,
                                                   const Tensor& v_in, double scale, bool causal) {
  check_dense(q_in, k_in, v_in);
  TORCH_CHECK(scale > 0, "scale: want a positive one");
  const Tensor q = aligned(q_in), k = aligned(k_in), v = aligned(v_in);
  Tensor out = at::empty(q.sizes(), q.options());
  Tensor lse = at::empty(q.sizes().slice(0, 3), lse_options(q));
  if (out.numel() != 0)
    launch(q, FlashForward{heads_of(q), heads_of(k), heads_of(v), out.mutable_data_ptr(),
                           lse.mutable_data_ptr(), q.size(0), q.size(1), k.size(1), q.size(2),
                           k.size(2), q.size(3), scale, causal, dtype_of(q)});
  return {out, lse};
}

std::tuple<Tensor, Tensor, Tensor> flash_attention_backward(
    const Tensor& grad_out, const Tensor& q_in, const Tensor& k_in, const Tensor& v_in,
    const Tensor& out, const Tensor& lse, double scale, bool causal) {
  check_dense(q_in, k_in, v_in);
  const Tensor q = aligned(q_in), k = aligned(k_in), v = aligned(v_in);
  check_like("grad_out", grad_out, q);
  check_like("out", out, q);
  TORCH_CHECK(grad_out.sizes() == q.sizes() && out.sizes() == q.sizes() && out.is_contiguous(),
              "grad_out and out: want the shape of q");
  TORCH_CHECK(lse.sizes() == q.sizes().slice(0, 3) && lse.is_contiguous() &&
                  lse.scalar_type() == lse_options(q).dtype().toScalarType(),
              "lse: want what the forward pass returned");
  const Tensor grad = grad_out.contiguous();
  Tensor delta = at::empty(lse.sizes(), lse.options());
  Tensor grad_q = at::empty(q.sizes(), q.options());
  Tensor grad_k = at::empty(k.sizes(), k.options());
  Tensor grad_v = at::empty(v.sizes(), v.options());
  if (q.numel() == 0 || k.numel() == 0)
    return {grad_q.zero_(), grad_k.zero_(), grad_v.zero_()};
  launch(q, FlashBackward{heads_of(q), heads_of(k), heads_of(v), out.const_data_ptr(),
                          grad.const_data_ptr(), lse.const_data_ptr(), delta.mutable_data_ptr(),
                          grad_q.mutable_data_ptr(), grad_k.mutable_data_ptr(),
                          grad_v.mutable_data_ptr(), q.size(0), q.size(1), k.size(1), q.size(2),
                          k.size(2), q.size(3), scale, causal, dtype_of(q)});
  return {grad_q, grad_k, grad_v};
}

void implement(torch::Library& m) {
  m.impl("rms_norm", &rms_norm);
  m.impl("add_rms_norm", &add_rms_norm);
  m.impl("rope_", &rope_);
  m.impl("silu_mul", &silu_mul);
  m.impl("copy_blocks", &copy_blocks);
  m.impl("swap_blocks", &swap_blocks);
  m.impl("paged_attention", &paged_attention);
  m.impl("flash_attention_forward", &flash_attention_forward);
  m.impl("flash_attention_backward", &flash_attention_backward);
}

}  // namespace
}  // namespace yaie

TORCH_LIBRARY(yaie, m) {
  m.def("rms_norm(Tensor x, Tensor weight, float eps, float offset=0.0) -> Tensor");
  m.def(
      "add_rms_norm(Tensor x, Tensor residual, Tensor weight, float eps, float offset=0.0)"
      " -> (Tensor, Tensor)");
  m.def("rope_(Tensor(a!) q, Tensor(b!) k, Tensor positions, Tensor cos_sin) -> ()");
  m.def("silu_mul(Tensor gate_up) -> Tensor");
  m.def("copy_blocks(Tensor(a!)[] caches, Tensor source, Tensor target) -> ()");
  m.def(
      "swap_blocks(Tensor source_cache, Tensor(a!) target_cache, Tensor source, Tensor target)"
      " -> ()");
  m.def(
      "paged_attention(Tensor q, Tensor k_cache, Tensor v_cache, Tensor block_tables,"
      " Tensor seq_lens, float scale, int max_seq_len, int? window=None, float? softcap=None,"
      " int? splits=None) -> Tensor");
  m.def(
      "flash_attention_forward(Tensor q, Tensor k, Tensor v, float scale, bool causal)"
      " -> (Tensor, Tensor)");
  m.def(
      "flash_attention_backward(Tensor grad_out, Tensor q, Tensor k, Tensor v, Tensor out,"
      " Tensor lse, float scale, bool causal) -> (Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(yaie, CPU, m) { yaie::implement(m); }
#ifdef YAIE_WITH_CUDA
TORCH_LIBRARY_IMPL(yaie, CUDA, m) { yaie::implement(m); }
#endif
