"""The responses API: what comes in, what goes out, what is kept."""
