"""The InferenceModel resource: its type, CRD, and the reading of manifests."""
