"""HTTP without meaning: the application, its edge, bodies, connections and listeners."""
