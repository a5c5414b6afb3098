"""Health, readiness and information about what is served."""
