"""Erasing events, purging conversations, and what both must find."""
