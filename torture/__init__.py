"""The torture kit: kills writers, cuts connections, and counts what was lost.

``python -m torture`` runs it; `docs/failures.md` describes the runs and the report.
"""

from torture.checking import COUNTS, Findings, Report
from torture.run import SCENARIOS, Torture, lacks, others_in, run
from torture.server import PostgresUnavailable

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
