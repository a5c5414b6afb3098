"""The contract that every part of yaie shares: types, names, metric names, errors and arithmetic.

Nothing here knows torch, Kubernetes clients or HTTP servers; every other package may import it.
"""

__version__ = "0.1.0"
