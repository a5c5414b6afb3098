"""Which engines get no requests for a while, and how many requests may be sent again."""
