"""From a configuration to an engine: settings, memory, model, parts."""
