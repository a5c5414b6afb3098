"""Turns logits into tokens: each slot's sampling parameters, and the state that they need."""
