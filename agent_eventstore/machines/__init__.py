"""What is recorded of a turn, a model call and a tool call: pure, without a store.

Each script answers what happens with the events that are to be written before the product's own
code goes on. The recorders for threads (`agent_eventstore.turn`) and for event loops
(`agent_eventstore.turn_aio`) write them, and hand back what the store answered. So both record the
same, and neither holds a rule of its own.
"""

from agent_eventstore.machines.answers import Answers, RequestedCall
from agent_eventstore.machines.call_facts import AnswerText, CallFacts
from agent_eventstore.machines.calls import CLOSED, CallScript
from agent_eventstore.machines.tools import Executable, ToolScript
from agent_eventstore.machines.turns import Branching, TurnScript, add_usage

__all__ = [
    "CLOSED",
    "AnswerText",
    "Answers",
    "Branching",
    "CallFacts",
    "CallScript",
    "Executable",
    "RequestedCall",
    "ToolScript",
    "TurnScript",
    "add_usage",
]
