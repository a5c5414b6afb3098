"""`yaie chat`: the client of a conversation and its screens."""
