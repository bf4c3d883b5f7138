"""Logs, spans and gauges."""
