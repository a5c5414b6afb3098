"""Conversion of text to and from a model, without torch: prompts, grammars, tool calls,
detokenization.
"""
