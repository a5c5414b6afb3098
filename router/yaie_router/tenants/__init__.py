"""Tenants: whose request it is, and what each of them may take."""
