"""Why a model cannot run in some way. Never reaches a user as it is: the next way is tried, and in
the end the reason becomes part of a refusal.
"""


class UnfitError(Exception):
    """One way of running the model would be wrong or impossible; the text completes "because"."""
