"""Benchmarks: ``make bench``. Each figure is compared with a floor or a peer in the same run.

Each benchmark is a module, such as `append`, `group`, `batches`, `read`, `rebuild`, `turn`,
`growth`, `storage`, `worker`, `recording` and `replay`. `bench` supplies sizes and databases,
`measure` runs the candidates in turns, `floors` and `peers` are what they are compared with, and
the results are works, as `results` defines them.
"""
