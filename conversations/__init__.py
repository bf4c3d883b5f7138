"""Application layer: what an agent product calls to record and read conversations."""
