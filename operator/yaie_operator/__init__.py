"""The operator: makes a cluster (or this machine) match the InferenceModels. No torch."""
