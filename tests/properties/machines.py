"""How long the state machines run: briefly in the suite, and for hours by hand.

With ``LONG_MACHINES=N`` in the environment each of them makes N times as many examples, of twice as
many steps, and other ones in every run.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

__all__ = ["explore"]

_TIMES = int(os.environ.get("LONG_MACHINES", "0"))


def explore(
    machine: type[RuleBasedStateMachine], *, examples: int, steps: int, **given: Any
) -> None:
    """Run a state machine whose class is given these attributes, such as its store."""
    run_state_machine_as_test(
        type(machine.__name__, (machine,), given),
        settings=settings(
            max_examples=examples * (_TIMES or 1),
            stateful_step_count=2 * steps if _TIMES else steps,
            derandomize=not _TIMES,
            deadline=None,
            print_blob=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
