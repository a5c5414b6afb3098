"""`yaie chat`: the client of a conversation and its terminal interface."""
