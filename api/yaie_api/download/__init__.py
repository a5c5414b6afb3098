"""The download of weights: what its pod tells the operator, and how amounts are written."""
