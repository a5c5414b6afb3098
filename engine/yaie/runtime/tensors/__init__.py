"""A step as tensors: its inputs, the KV cache, copies between host and device."""
