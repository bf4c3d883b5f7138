"""The read models, one per file; they do not depend on each other."""
