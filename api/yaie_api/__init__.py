"""The contract that all parts of yaie share: types, names, metric names, errors and arithmetic.

It imports no torch, Kubernetes client or HTTP server; every other package may import it.
"""

__version__ = "0.1.0"
