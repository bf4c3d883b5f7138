"""OpenAI's Responses: streams, answers, items and requests."""
