"""The HTTP processes of a server: the first one, the others, and what both are made of."""
