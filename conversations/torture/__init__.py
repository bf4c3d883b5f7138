"""The torture kit: writers that are killed, connections that are cut, and a count of what was lost.

``eventstore torture`` runs it; `docs/torture.md` tells what it does and what its report means.
"""

from conversations.torture.report import COUNTS, Findings, Report
from conversations.torture.run import Torture, lacks, others_in, run
from conversations.torture.scenarios import SCENARIOS
from conversations.torture.server import PostgresUnavailable

__all__ = [
    "COUNTS",
    "SCENARIOS",
    "Findings",
    "PostgresUnavailable",
    "Report",
    "Torture",
    "lacks",
    "others_in",
    "run",
]
