"""Finding messages and conversations by their words."""
