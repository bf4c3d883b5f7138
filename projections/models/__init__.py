"""The read models, one a file; they know nothing of each other."""
