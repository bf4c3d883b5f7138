"""What the messages[] view keeps, beside other ways to fit a budget, on real transcripts.

``python -m benchmarks.context``, or ``make bench-context``. Two measures: *grounding* (are the
values still there that the next tool call needs?) and *cache* (how much of a prompt is the
beginning of the prompt before?). What a read costs is measured by `benchmarks.context_reads`.
"""
