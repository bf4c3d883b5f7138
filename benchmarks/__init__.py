"""Benchmarks: ``make bench``. Each figure stands beside a floor or a peer of the same run."""
