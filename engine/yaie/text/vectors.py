"""Converts pooled hidden states to embeddings, cosines and probabilities. Pure, float32.

The server and `LLM` both use this module, so their results are the same.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float32]


def from_bytes(pooled: bytes) -> Vector:
    """The vector [n] of `Tokens.pooled`: float32, little-endian."""
    return np.frombuffer(pooled, dtype="<f4")


def embedding(pooled: Vector, dimensions: int | None = None, *, normalize: bool = True) -> Vector:
    """The first `dimensions` numbers of a vector (None: all), scaled to unit length if `normalize`.

    Matryoshka representation learning: Kusupati et al. 2022 (arXiv:2205.13147).
    """
    cut = pooled[:dimensions]
    if not normalize:
        return cut
    length = np.linalg.norm(cut.astype(np.float64))
    return (cut / length).astype(np.float32) if length > 0 else cut


def cosine(left: Vector, right: Vector) -> float:
    """Cosine of the angle between two vectors of unit length."""
    return float(np.dot(left.astype(np.float64), right.astype(np.float64)))


def sigmoid(logit: float) -> float:
    """1 / (1 + exp(-logit)), without overflow."""
    return float(0.5 * (1.0 + np.tanh(0.5 * logit)))


def softmax(logits: Vector) -> Vector:
    """Probabilities of classes; for a single class the sigmoid of its logit."""
    if logits.size == 1:
        return np.array([sigmoid(float(logits[0]))], dtype=np.float32)
    shifted = np.exp(logits.astype(np.float64) - logits.max())
    probabilities: Vector = (shifted / shifted.sum()).astype(np.float32)
    return probabilities
