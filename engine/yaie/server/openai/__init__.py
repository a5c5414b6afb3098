"""Chat completions and text completions, and how their answers are written down."""
