"""The weights of a model with `cache.mode: pvc`: what is decided about them, and what is said."""
