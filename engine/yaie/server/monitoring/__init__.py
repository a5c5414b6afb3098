"""Endpoints for liveness, readiness, and information about the server and its model."""
