"""Benchmarks: ``make bench``. Each figure stands beside a floor or a peer of the same run.

One module a group of works: `append`, `group`, `batches`, `read`, `rebuild`, `turn`, `growth`,
`storage`, `worker`, `recording`, `replay`. They are given sizes and databases by `bench`, take
turns in `measure`, compare with `floors` and `peers`, and answer with the works of `results`.
"""
