"""The scheduler: plans the next step and applies the results of steps to the requests."""
