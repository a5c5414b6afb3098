"""The operator: makes a cluster (or this machine) match its InferenceModels. It has no torch."""
