"""What all endpoints share: opening a request, its prompt, its output form, its errors."""
