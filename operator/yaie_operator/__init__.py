"""The operator: makes a cluster (or this machine) match the InferenceModels. Never imports torch."""
