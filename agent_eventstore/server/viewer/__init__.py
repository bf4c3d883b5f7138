"""The viewer: pages that show what happened in conversations, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from agent_eventstore.server.service import Service

__all__ = ["routes"]


def routes(service: Service) -> list[BaseRoute]:
    """Return the routes of the viewer's pages."""
    return []
