"""What commands that advise work out: what a model takes, why it waits, what is missing."""
