"""What all endpoints share: opening a request, its prompt and output form, submitting it."""
