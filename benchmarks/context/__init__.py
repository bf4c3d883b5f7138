"""What the messages[] view keeps, beside other ways to fit a budget, on real transcripts.

``python -m benchmarks.context``, or ``make bench-context``. Three measures: *grounding* (are the
values still there that the next tool call needs?), *cache* (how much of a prompt is the beginning
of the prompt before?) and *latency* (what a read costs in a long conversation).
"""
