"""Sealing, keys, redaction, the hash chain and its checkpoints."""
