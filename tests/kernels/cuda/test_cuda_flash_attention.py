"""Dense attention and its gradients in C++ and CUDA against autograd of the written-out scores."""

import pytest
import torch

from yaie_kernels import cuda, reference
from yaie_kernels.testing import judge

# batch, query heads, KV heads, queries, keys
SHAPES = [
    (1, 1, 1, 1, 1),
    (2, 4, 2, 67, 67),
    (1, 16, 1, 5, 131),  # a chunk at the end of a longer prefix
    (1, 2, 2, 37, 23),  # causal: the first queries see no key
    (1, 3, 3, 129, 128),
]
NAMES = ("out", "grad_q", "grad_k", "grad_v")

Tensors = tuple[torch.Tensor, ...]


def inputs(
    shape: tuple[int, ...], head_dim: int, dtype: torch.dtype, device: str
) -> tuple[Tensors, torch.Tensor]:
    """(q, k, v), q a view as of a projection, and the gradient of the result."""
    batch, q_heads, kv_heads, queries, keys = shape
    q = torch.randn(batch, queries, q_heads, head_dim).transpose(1, 2)
    k, v = torch.randn(2, batch, kv_heads, keys, head_dim)
    grad = torch.randn(q.shape)
    return tuple(x.to(dtype).to(device) for x in (q, k, v)), grad.to(dtype).to(device)


def run(attention: object, tensors: Tensors, grad: torch.Tensor, *, causal: bool) -> Tensors:
    """The result and the gradients of q, k and v."""
    leaves = [x.detach().requires_grad_() for x in tensors]
    scale = leaves[0].shape[-1] ** -0.5
    out = attention(*leaves, scale=scale, causal=causal)
    return out.detach(), *torch.autograd.grad(out, leaves, grad)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"B{s[0]}H{s[1]}/{s[2]}T{s[3]}S{s[4]}")
def test_result_and_gradients(
    shape: tuple[int, ...], head_dim: int, causal: bool, dtype: torch.dtype, device: str
) -> None:
    tensors, grad = inputs(shape, head_dim, dtype, device)
    got = run(cuda.flash_attention, tensors, grad, causal=causal)
    plain = run(reference.flash_attention, tensors, grad, causal=causal)
    exact = run(
        reference.flash_attention, tuple(x.double() for x in tensors), grad.double(), causal=causal
    )
    for name, *results in zip(NAMES, got, plain, exact, strict=True):
        if name in {"grad_q", "grad_k"} and shape[4] == 1:
            continue  # nothing depends on the scores of one key: what is left of them is rounding
        judge(name, *results)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("shape", [(1, 2, 1, 3, 3), (2, 2, 2, 2, 4)])
def test_gradients_are_those_of_finite_differences(shape: tuple[int, ...], causal: bool) -> None:
    """In float64, which only the CPU version computes."""
    tensors, _ = inputs(shape, 4, torch.float64, "cpu")
    leaves = [x.requires_grad_() for x in tensors]
    assert torch.autograd.gradcheck(
        lambda q, k, v: cuda.flash_attention(q, k, v, scale=0.5, causal=causal), leaves
    )


def test_gradients_are_the_same_in_every_run(device: str) -> None:
    tensors, grad = inputs((2, 4, 2, 67, 67), 64, torch.float16, device)
    first = run(cuda.flash_attention, tensors, grad, causal=True)
    for _ in range(3):
        again = run(cuda.flash_attention, tensors, grad, causal=True)
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_queries_without_keys_are_zeros(device: str) -> None:
    (q, k, v), grad = inputs((1, 2, 1, 3, 0), 64, torch.float32, device)
    out, *grads = run(cuda.flash_attention, (q, k, v), grad, causal=False)
    assert all(x.count_nonzero() == 0 for x in (out, *grads))


def test_heads_that_do_not_divide_are_refused(device: str) -> None:
    (q, k, v), _ = inputs((1, 3, 2, 4, 4), 64, torch.float32, device)
    with pytest.raises(RuntimeError, match="want a multiple of 2 heads"):
        cuda.flash_attention(q, k, v, scale=1.0, causal=True)
