"""Grammars on their way to token masks: compiled beside the loop, bounded in time and memory."""
