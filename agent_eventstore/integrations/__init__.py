"""Stores for the slots that agent frameworks have for one; each module needs its framework."""
