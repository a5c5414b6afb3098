"""`yaie up` on this machine, and the client with which other commands control it."""
