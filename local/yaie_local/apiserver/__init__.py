"""An API server of a single machine: objects, validation, watches, by verbs."""
