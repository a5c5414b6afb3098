"""The judge of kernels passes honest rounding and fails faults, NaN and wrong shapes."""

import pytest
import torch

from yaie_kernels.testing import judge


def test_a_correct_rounding_passes() -> None:
    exact = torch.randn(100, dtype=torch.float64)
    judge("x", exact.half(), exact.half(), exact)


@pytest.mark.parametrize("fault", [1.002, float("nan")])
def test_a_fault_fails(fault: float) -> None:
    exact = torch.randn(100, dtype=torch.float64)
    got = exact.float()
    got[7] *= fault
    with pytest.raises(AssertionError, match="error"):
        judge("x", got, exact.float(), exact)


def test_a_wrong_shape_fails() -> None:
    exact = torch.randn(4, dtype=torch.float64)
    with pytest.raises(AssertionError, match="shape"):
        judge("x", exact.float()[:3], exact.float(), exact)
