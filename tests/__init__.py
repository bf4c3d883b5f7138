"""The suite: one package per kind of test, one behaviour per test."""
