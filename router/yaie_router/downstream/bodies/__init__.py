"""Reads what clients send, within bounds."""
