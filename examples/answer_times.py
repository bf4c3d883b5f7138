"""How long users wait for an answer: a product's own projection."""

from datetime import datetime

from agent_eventstore import Column, ProjectionSet, Put, ReadTable
from eventstore.events import AssistantMessage, UserMessage

TABLE = ReadTable(
    "answer_times",
    key=("question",),
    columns=(
        Column("question", "integer"),  # the version of the user's message
        Column("asked_at", "timestamp"),
        Column("seconds", "float"),  # NULL until the answer is recorded
    ),
)


class AnswerTimes:
    """One row for each user message."""

    name, version, tables = "answer_times", 1, (TABLE,)

    def initial(self):
        """Return the state before any question."""
        return {}

    def fold(self, state, event):
        """Add a row for a question, and complete it with the answer."""
        at = event.meta.occurred_at or event.recorded_at
        if isinstance(event.data, UserMessage):
            asked = {"question": event.version, "asked_at": at.isoformat()}
            return asked, [Put(TABLE.name, (event.version,), {"asked_at": at})]
        if isinstance(event.data, AssistantMessage) and state and not event.data.tool_calls:
            waited = at - datetime.fromisoformat(state["asked_at"])
            row = {"seconds": waited.total_seconds()}
            return {}, [Put(TABLE.name, (state["question"],), row)]
        return state, []


PROJECTIONS = ProjectionSet([AnswerTimes()])
