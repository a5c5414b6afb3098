"""The building blocks of models, on top of `yaie_kernels`."""
