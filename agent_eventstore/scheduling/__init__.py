"""Several conversations under one scheduler: document 003, on top of the agents' sessions.

`Scheduler` runs tasks one at a time. ``queue`` stores them in the root conversation's log,
``conversation_tools`` has the tools with which a model works with other conversations,
``interrupts`` plans the tasks of those that interrupt, and ``task_runs`` runs a task to its end.
"""

from agent_eventstore.scheduling.queue import Closure, TaskPlan, TaskResult
from agent_eventstore.scheduling.scheduler import Scheduler

__all__ = ["Closure", "Scheduler", "TaskPlan", "TaskResult"]
