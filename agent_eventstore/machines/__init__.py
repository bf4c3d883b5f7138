"""State machines of turns, model calls and tool calls, which return events but do no I/O.

Each script takes what happens, and returns the events to write before the product's own code
continues. The recorders for threads (`agent_eventstore.turn`) and for event loops
(`agent_eventstore.turn_aio`) write them and pass back the store's result. So both record the same
events, and neither contains rules of its own.
"""

from agent_eventstore.machines.answers import Answers, RequestedCall
from agent_eventstore.machines.call_facts import AnswerText, CallFacts
from agent_eventstore.machines.call_script import CLOSED, CallScript
from agent_eventstore.machines.tool_script import Executable, ToolScript
from agent_eventstore.machines.turn_script import Branching, TurnScript, add_usage

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
