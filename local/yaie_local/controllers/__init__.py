"""Controllers of a single machine: Deployments, Endpoints, garbage."""
