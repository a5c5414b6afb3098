"""Logits to tokens: what each slot asks for, and the state that it needs."""
