"""Tests of the strategies that make a conversation smaller."""
