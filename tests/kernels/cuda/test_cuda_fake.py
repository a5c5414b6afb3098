"""Schemas and shapes are as torch is told: what is written, what is returned."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from yaie_kernels.testing import paged_case


def paged(device: str) -> tuple[Any, ...]:
    case = paged_case([1, 1], [5, 20], q_heads=4, kv_heads=2, head_dim=64, device=device)
    return (*case.args[:5], 0.1, 20)


def forward(device: str) -> tuple[Any, ...]:
    q, k, v = torch.randn(3, 1, 2, 5, 64, device=device)
    return q, k, v, 0.1, True


def backward(device: str) -> tuple[Any, ...]:
    q, k, v, scale, causal = forward(device)
    out, lse = torch.ops.yaie.flash_attention_forward(q, k, v, scale, causal)
    return torch.randn_like(q), q, k, v, out, lse, scale, causal


def rope(device: str) -> tuple[Any, ...]:
    q, k = torch.randn(2, 3, 2, 64, device=device)
    return q, k, torch.arange(3, device=device), torch.randn(8, 64, device=device)


def copies(device: str) -> tuple[Any, ...]:
    ids = torch.arange(4, device=device)
    return [torch.randn(6, 2, 2, 4, device=device) for _ in range(2)], ids[:2], ids[2:]


ARGUMENTS: dict[str, Callable[[str], tuple[Any, ...]]] = {
    "rms_norm": lambda device: (
        torch.randn(3, 2, 8, device=device),
        torch.ones(8, device=device),
        1e-6,
    ),
    "add_rms_norm": lambda device: (
        *torch.randn(2, 3, 8, device=device),
        torch.ones(8, device=device),
        1e-6,
    ),
    "rope_": rope,
    "silu_mul": lambda device: (torch.randn(3, 8, device=device),),
    "copy_blocks": copies,
    "swap_blocks": lambda device: (*copies(device)[0], *copies(device)[1:]),
    "paged_attention": paged,
    "flash_attention_forward": forward,
    "flash_attention_backward": backward,
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("operation", list(ARGUMENTS))
def test_schema_and_fake_agree_with_the_operation(operation: str, device: str) -> None:
    torch.library.opcheck(
        getattr(torch.ops.yaie, operation).default,
        ARGUMENTS[operation](device),
        test_utils=("test_schema", "test_faketensor"),
    )
