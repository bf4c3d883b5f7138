"""The engine of the read side: what a projection is, catching up, rebuilding, comparing."""
