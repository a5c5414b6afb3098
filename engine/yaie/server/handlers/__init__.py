"""What the handlers of all endpoints share: a request opened, its prompt and form, its errors."""
