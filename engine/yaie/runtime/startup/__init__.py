"""Builds an engine from its configuration: settings, memory, model, parts."""
