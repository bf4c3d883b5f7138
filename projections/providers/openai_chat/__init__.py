"""OpenAI's Chat Completions: streams, answers and requests."""
