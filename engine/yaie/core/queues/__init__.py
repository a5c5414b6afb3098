"""Who waits, in which order and for how long."""
