"""The revisions, oldest first by name; each is complete in itself and never edited."""
