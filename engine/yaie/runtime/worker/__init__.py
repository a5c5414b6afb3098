"""One step on the device: inputs, forward, sampling, results."""
