"""The `yaie` command. Heavy imports are inside the commands that need them."""
