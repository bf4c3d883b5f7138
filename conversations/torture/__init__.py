"""The torture kit: writers that are killed, connections that are cut, and a count of what was lost.

``eventstore torture`` runs it; `docs/torture.md` tells what it does and what its report means.
"""

from conversations.torture.report import Findings, Report
from conversations.torture.run import Torture, others_in, run

__all__ = ["Findings", "Report", "Torture", "others_in", "run"]
