"""Models from the hub: fetched in parts that a later try goes on with, and kept in its cache."""
