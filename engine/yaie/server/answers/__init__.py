"""What becomes of an engine's events: one answer, whole or streamed, in a caller's terms."""
