"""How each family of models writes tool calls."""
