"""HTTP/1.1 to engines: heads, the framing of bodies, connections, and those that are kept open."""
