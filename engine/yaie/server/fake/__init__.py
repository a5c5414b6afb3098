"""`yaie fake-engine`: the real server over scripted answers, for load tests without a model."""
