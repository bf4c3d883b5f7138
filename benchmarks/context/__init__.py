"""What the messages[] view keeps, compared with other ways to fit a budget, on real transcripts.

Run ``python -m benchmarks.context`` or ``make bench-context``. There are two measures: *grounding*
(does the context still contain the values that the next tool call needs?) and *cache* (how much of
a prompt repeats the beginning of the previous one?). `benchmarks.context_reads` measures the cost
of a read.
"""
