"""Compiles grammars and fills token masks, beside the loop, within limits of time and memory."""
