"""The read side: projections that fold conversations into tables, and views that read them.

::

    from projections import Views

    views = Views(store)
    views.timeline(conversation_id)
    views.context(conversation_id, max_tokens=8000, model="gpt-4o").messages
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventstore.lazy import exports

if TYPE_CHECKING:
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

__getattr__ = exports(
    __name__,
    {
        "AsyncViews": "projections.aio",
        "Column": "projections.engine.projection",
        "ContextOptions": "projections.context.settings",
        "ConversationEntry": "projections.listing",
        "ConversationPage": "projections.listing",
        "PROJECTIONS": "projections.catalogue",
        "Patch": "projections.engine.projection",
        "Projection": "projections.engine.projection",
        "ProjectionSet": "projections.catalogue",
        "Put": "projections.engine.projection",
        "ReadTable": "projections.engine.projection",
        "SearchHit": "projections.search.finding",
        "Views": "projections.views",
    },
)
