"""`create_app`: the service as an ASGI application, alone or mounted in a product's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, Response

from agent_eventstore.participants import Participant
from agent_eventstore.server import (
    chat_api,
    conversation_api,
    durable_streams,
    event_stream,
    viewer,
)
from agent_eventstore.server.endpoints import ApiCall, Operation, route_of
from agent_eventstore.server.guard import LOOPBACK_NAMES, Authenticate, RequestGuard
from agent_eventstore.server.openapi import document_of_api, page_of_api
from agent_eventstore.server.problems import handlers
from agent_eventstore.server.shared import Service, ServiceLimits
from eventstore import EventStore

__all__ = ["OPERATIONS", "create_app"]


def _document(call: ApiCall) -> Any:
    return document_of_api(OPERATIONS)


def _page(call: ApiCall) -> Response:
    return HTMLResponse(page_of_api(document_of_api(OPERATIONS)))


OPERATIONS = (
    *chat_api.OPERATIONS,
    *conversation_api.OPERATIONS,
    *event_stream.OPERATIONS,
    *durable_streams.OPERATIONS,
    Operation(
        method="GET",
        path="/api/openapi.json",
        name="openapi",
        summary="Return this document.",
        handler=_document,
    ),
    Operation(
        method="GET",
        path="/api",
        name="api_page",
        summary="Return this document as a page for people.",
        handler=_page,
        media_type="text/html",
    ),
)
"""Every operation of the API."""


def create_app(
    store: EventStore,
    *,
    models: Mapping[str, Any] | None = None,
    participants: Sequence[Participant] = (),
    model_name: str | None = None,
    authenticate: Authenticate | None = None,
    token: str | None = None,
    user_header: str | None = None,
    hosts: Sequence[str] = LOOPBACK_NAMES,
    read_only: bool = False,
    limits: ServiceLimits | None = None,
) -> Starlette:
    """Return the service of a store; mount it under any path, or run it with an ASGI server.

    ::

        app.mount("/eventstore", create_app(store, authenticate=owner_of, hosts=["example.com"]))

    Args:
        store: The store; the caller closes it.
        models: The models that answer ``POST /api/chat``, by participant id; each as for
            `ChatSession`.
        participants: The participants of new chats; by default one for each model.
        model_name: The name of the model for participants that name none.
        authenticate: Takes the request, and returns its `Identity`; None refuses it. It may be
            asynchronous.
        token: The secret that requests must carry; see `RequestGuard`.
        user_header: The header in which a proxy that has authenticated the user names them.
        hosts: The host names under which the service may be called, without ports; ``*`` for any.
        read_only: Refuse every request that writes.
        limits: The bounds; see `ServiceLimits`.

    Raises:
        ValueError: Neither ``authenticate``, ``token`` nor ``user_header`` says who may read.
    """
    if authenticate is None and token is None and user_header is None:
        raise ValueError(
            "who may read this store? Pass authenticate=, token= or user_header= to create_app"
        )
    models = dict(models or {})
    service = Service(
        store,
        models=models,
        participants=tuple(participants) or tuple(Participant(name) for name in models),
        model_name=model_name,
        read_only=read_only or store.read_only,
        limits=limits or ServiceLimits(),
    )
    guard = Middleware(
        RequestGuard,
        authenticate=authenticate,
        token=token,
        user_header=user_header,
        hosts=tuple(hosts),
        read_only=service.read_only,
        limits=service.limits,
    )
    app = Starlette(
        routes=[
            *(route_of(each, service) for each in OPERATIONS),
            *viewer.routes(service),
        ],
        middleware=[guard],
        exception_handlers=handlers,
    )
    app.state.service = service
    return app
