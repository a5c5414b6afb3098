"""What `helm test` runs in a pod: one question to a model, the way of a client."""
