"""The side of the clients: the HTTP server, what it reads, and the answers of the router itself."""
