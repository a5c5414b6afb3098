"""The error for a way of running a model that is not possible. Users do not see it directly: the
next way is tried, and if all fail, the reason becomes part of the final error.
"""


class UnfitError(Exception):
    """One way of running the model is wrong or impossible; the message completes "because …"."""
