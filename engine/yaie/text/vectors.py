"""What becomes of pooled hidden states: embeddings, cosines, probabilities. Pure, float32.

Server and `LLM` both use it, so that their numbers are the same.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float32]


def from_bytes(pooled: bytes) -> Vector:
    """The vector [n] of `Tokens.pooled`: float32, little-endian."""
    return np.frombuffer(pooled, dtype="<f4")


def embedding(pooled: Vector, dimensions: int | None = None, *, normalize: bool = True) -> Vector:
    """A vector of unit length; with `dimensions` its first numbers only, again of unit length
    (Matryoshka representation learning, Kusupati et al. 2022, arXiv 2205.13147).
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
    """Probabilities of classes; of a single class its sigmoid."""
    if logits.size == 1:
        return np.array([sigmoid(float(logits[0]))], dtype=np.float32)
    shifted = np.exp(logits.astype(np.float64) - logits.max())
    probabilities: Vector = (shifted / shifted.sum()).astype(np.float32)
    return probabilities
