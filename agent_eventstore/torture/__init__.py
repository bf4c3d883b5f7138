"""The torture kit: writers are killed, connections are cut, and what was lost is counted.

``eventstore torture`` runs it; `docs/torture.md` tells what it does and what its report means.
"""

from agent_eventstore.torture.checking import COUNTS, Findings, Report
from agent_eventstore.torture.run import SCENARIOS, Torture, lacks, others_in, run
from agent_eventstore.torture.server import PostgresUnavailable

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
