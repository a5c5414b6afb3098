"""Rollouts: how engines are replaced, how far that is, and what it waits for."""
