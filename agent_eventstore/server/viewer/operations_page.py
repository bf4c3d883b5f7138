"""Operations: how far the projections are behind, open work and its writers, doctor and verify.

The page folds nothing before it reports how far the projections are behind: the status is read
first. Doctor, verify and the checkpoint of all chain heads read much, so they run only when wanted.
"""

from __future__ import annotations

import io
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from agent_eventstore.cli.db import examine
from agent_eventstore.server.viewer.frame import Frame
from projections.catalogue import PROJECTIONS
from projections.upkeep import status

__all__ = ["operations"]

_OPEN = 50
_SAMPLE = 100
_PROBLEMS = 100


def operations(frame: Frame, request: Request) -> Response:
    """Show the state of the store."""
    views = frame.views(request)
    store, chosen = views.store, request.query_params
    free = not store.owner.asks
    values: dict[str, Any] = {
        "section": "operations",
        "free": free,
        "projections": [],
        "work": [],
        "checks": None,
        "verified": None,
        "problems": [],
        "sample": _SAMPLE,
        "heads": None,
        "writers": store.writers(limit=_OPEN),
    }
    if free:
        values["projections"] = status(frame.service.store, PROJECTIONS)
        if chosen.get("doctor") == "1":
            values["checks"] = list(examine(frame.service.store, _SAMPLE))
        if chosen.get("verify") == "1":
            values["verified"] = store.verify()
            values["problems"] = values["verified"].problems[:_PROBLEMS]
        if chosen.get("heads") == "1":
            values["heads"] = store.checkpoint(io.BytesIO())
    for stream in views.conversations_with_open_work(limit=_OPEN):
        rows = views.rows("directory", conversation_id=stream)
        title = next((row.get("title") for row in rows), None)
        values["work"].append(
            (stream, title or "(untitled)", views.open_work(stream), store.writer(stream))
        )
    return frame.page(request, "operations.html", **values)
