"""Adapters that plug the store into agent frameworks; each module imports its framework."""
