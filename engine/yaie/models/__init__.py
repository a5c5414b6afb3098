"""Native model definitions and the loading of their weights."""
