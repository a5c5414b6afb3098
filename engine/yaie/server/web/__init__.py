"""HTTP: the application, the middleware around it, connections and listening sockets."""
