"""Which engine has how much of a request's prompt, by what the engines publish, and who gets it."""
