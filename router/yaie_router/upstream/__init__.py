"""The side of the engines: requests to them, and what comes back, relayed."""
