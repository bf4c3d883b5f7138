"""The viewer: server-rendered pages over the reading API, to see what happened and why.

`routes` returns the pages for the application of `agent_eventstore.server`. Every page has an
address that can be shared; scripts add only search as one types, live changes and keys.
"""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from agent_eventstore.server.shared import Service
from agent_eventstore.server.viewer import (
    conversation_list,
    conversation_page,
    operations_page,
    request_page,
    tools_page,
    usage_page,
    why_page,
)
from agent_eventstore.server.viewer.frame import Frame

__all__ = ["routes"]

_PAGES = (
    ("/", conversation_list.conversations),
    ("/c/{conversation}", conversation_page.conversation),
    ("/c/{conversation}/items", conversation_page.changed_items),
    ("/c/{conversation}/outline", conversation_page.outline_rows),
    ("/c/{conversation}/call/{call}", conversation_page.tool_call),
    ("/c/{conversation}/text/{version:int}/{part:int}", conversation_page.whole_text),
    ("/c/{conversation}/r/{version:int}", request_page.sent_request),
    ("/c/{conversation}/next", request_page.next_request),
    ("/c/{conversation}/why", why_page.why),
    ("/usage", usage_page.usage),
    ("/tools", tools_page.tools),
    ("/operations", operations_page.operations),
)


def routes(service: Service) -> list[BaseRoute]:
    """Return the pages of the viewer, and its scripts and styles."""
    frame = Frame(service)
    pages = [Route(path, frame.endpoint(handler), methods=["GET"]) for path, handler in _PAGES]
    return [*pages, Route("/static/{name}", frame.file, methods=["GET"])]
