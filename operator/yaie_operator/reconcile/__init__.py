"""Observed and desired objects, the plan of writes between them, conditions and status."""
