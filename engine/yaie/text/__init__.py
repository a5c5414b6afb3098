"""Text in and out of a model, without torch: prompts, grammars, tool calls, detokenizing."""
