"""The read side's engine: what keeps the tables current, on both databases."""
