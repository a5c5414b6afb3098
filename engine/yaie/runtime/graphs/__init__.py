"""CUDA graphs of steps: captured once, chosen by rows and tokens, replayed."""
