"""Tests of one module at a time, mostly without a database."""
