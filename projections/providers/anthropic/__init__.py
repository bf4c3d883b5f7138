"""Anthropic's Messages: streams, answers and requests."""
