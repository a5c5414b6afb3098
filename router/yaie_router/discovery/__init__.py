"""What there is: models and endpoints, watched at the Kubernetes API."""
