"""The read side: projections that fold conversations into tables, and views that read them.

::

    from projections import Views

    views = Views(store)
    views.timeline(conversation_id)
    views.context(conversation_id, max_tokens=8000, model="gpt-4o").messages
"""

from projections.aio import AsyncViews
from projections.catalogue import PROJECTIONS, ProjectionSet
from projections.context.settings import ContextOptions
from projections.engine.projection import Column, Patch, Projection, Put, ReadTable
from projections.listing import ConversationEntry, ConversationPage
from projections.search.finding import SearchHit
from projections.views import Views

__all__ = [
    "PROJECTIONS",
    "AsyncViews",
    "Column",
    "ContextOptions",
    "ConversationEntry",
    "ConversationPage",
    "Patch",
    "Projection",
    "ProjectionSet",
    "Put",
    "ReadTable",
    "SearchHit",
    "Views",
]
