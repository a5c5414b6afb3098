"""Traces over router and engine: W3C trace context, spans as values, and their export by OTLP."""
