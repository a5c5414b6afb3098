"""The `yaie` command. Every heavy import stands inside its command."""
