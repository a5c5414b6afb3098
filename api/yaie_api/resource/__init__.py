"""The InferenceModel resource: its model, schema, CRD and children's manifests."""
