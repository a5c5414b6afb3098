"""The API server of a single machine: objects, validation, verbs and watches."""
