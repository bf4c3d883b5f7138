"""Tests of the messages[] view: pure values in, pure values out."""
