"""Every operation of the engine: torch reference, Triton, and CUDA C++ where it pays."""
