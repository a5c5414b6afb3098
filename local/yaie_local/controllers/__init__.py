"""Controllers of a single machine: Deployments, EndpointSlices, garbage collection."""
