"""The waiting queue: its policies, the deadlines, and the rates of arrival and completion."""
