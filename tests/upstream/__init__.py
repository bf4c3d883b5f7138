"""The frameworks' own tests, run with this project's classes; see `python -m tests.upstream`."""
