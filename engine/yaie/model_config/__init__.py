"""What config.json says of a model, checked: plain data without torch."""
