"""Which engine takes a request, and when: choice, limits, and waiting for a first engine."""
