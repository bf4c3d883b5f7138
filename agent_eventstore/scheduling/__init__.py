"""Several conversations under one scheduler: document 003, on top of the agents' sessions.

`Scheduler` runs tasks one at a time; ``queue`` keeps them in the root conversation's log,
``conversation_tools`` are the tools by which a model works with other conversations, ``interrupts``
what those set off that interrupt, and ``task_runs`` takes a task to its end.
"""

from agent_eventstore.scheduling.queue import Closure, TaskPlan, TaskResult
from agent_eventstore.scheduling.scheduler import Scheduler

__all__ = ["Closure", "Scheduler", "TaskPlan", "TaskResult"]
