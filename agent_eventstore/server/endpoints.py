"""`Operation`: a method and path of the API, with the models that check what a request contains.

The same models describe it in the OpenAPI document, so the document cannot differ from what is
checked. A handler is called in a thread, unless it is asynchronous.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agent_eventstore.documents import json_bytes
from agent_eventstore.server.problems import RequestProblem, problem_response, refused, status_of
from agent_eventstore.server.shared import Service
from eventstore import EventStore
from eventstore.errors import EventStoreError
from projections import Views

__all__ = ["ApiCall", "Operation", "RequestModel", "json_response", "route_of"]

_REPORTED = 20


class RequestModel(BaseModel):
    """The base of the models of queries and bodies: unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A request to an operation, checked.

    Attributes:
        service: The service.
        request: The request.
        query: The operation's model of its query.
        body: The operation's model of its body.
    """

    service: Service
    request: Request
    query: Any
    body: Any

    @property
    def views(self) -> Views:
        """The views of the requesting owner."""
        return self.service.views_for(self.request)

    @property
    def store(self) -> EventStore:
        """The store, bound to the requesting owner."""
        return self.views.store

    @property
    def named(self) -> str:
        """The id or key of the conversation in the path."""
        return str(self.request.path_params["conversation"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A method and path of the API.

    Attributes:
        method: The HTTP method.
        path: The path, with ``{conversation}`` for a conversation's id or key.
        name: The unique name of the operation.
        summary: What it does, in a sentence.
        handler: Takes a `ApiCall`; returns a value for JSON, or a response.
        query: The model of the query.
        body: The model of the JSON body; None if there is none.
        status: The status of a success.
        media_type: What is returned.
        headers: Request headers that matter, with their meaning.
    """

    method: str
    path: str
    name: str
    summary: str
    handler: Callable[[ApiCall], Any]
    query: type[RequestModel] = RequestModel
    body: type[RequestModel] | None = None
    status: int = 200
    media_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def writes(self) -> bool:
        """Whether it changes the store."""
        return self.method not in ("GET", "HEAD")


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a response with a value as JSON."""
    return Response(json_bytes(value), status, headers, media_type="application/json")


def route_of(operation: Operation, service: Service) -> Route:
    """Return the route of an operation."""

    async def endpoint(request: Request) -> Response:
        try:
            return await _answer(operation, service, request)
        except (EventStoreError, RequestProblem) as error:
            return await refused(request, error)
        except (ValueError, LookupError) as error:
            # Of the library's own checks of arguments: a request cannot name these otherwise.
            if not _is_of_arguments(error):
                raise
            return problem_response(error)

    route = Route(operation.path, endpoint, methods=[operation.method], name=operation.name)
    if operation.method == "GET" and inspect.iscoroutinefunction(operation.handler):
        # Streams: HEAD is an operation of its own, or none.
        assert route.methods is not None  # noqa: S101 - for the type checker
        route.methods.discard("HEAD")
    return route


async def _answer(operation: Operation, service: Service, request: Request) -> Response:
    body = None
    if operation.body is not None:
        body = _checked(operation.body, await _json_of(request), "body")
    call = ApiCall(service, request, _checked(operation.query, _query_of(request), "query"), body)
    if inspect.iscoroutinefunction(operation.handler):
        value = await operation.handler(call)
        return value if isinstance(value, Response) else json_response(value, operation.status)

    def answer() -> Response:
        value = operation.handler(call)
        return value if isinstance(value, Response) else json_response(value, operation.status)

    return await (service.write if operation.writes else service.run)(answer)


def _query_of(request: Request) -> dict[str, Any]:
    pairs = request.query_params.multi_items()
    found = dict(pairs)
    if len(found) < len(pairs):
        raise RequestProblem(400, "a parameter of the query is given more than once")
    return found


async def _json_of(request: Request) -> Any:
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent != "application/json":
        raise RequestProblem(415, "send the body as Content-Type: application/json")
    raw = await request.body()
    try:
        return json.loads(raw.decode() or "{}", parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RequestProblem(
            400, f"the body is not JSON: {str(error) or 'it is nested too deep'}"
        ) from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _checked(model: type[RequestModel], values: Any, place: str) -> RequestModel:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        found = [
            {"at": ".".join(map(str, each["loc"])) or place, "problem": each["msg"]}
            for each in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        first = f"{found[0]['at']}: {found[0]['problem']}"
        raise RequestProblem(
            400, f"the {place} is not valid: {first}", errors=found[:_REPORTED]
        ) from None


def _is_of_arguments(error: Exception) -> bool:
    """Whether an error was raised on purpose, by a statement of this library."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))
    return status_of(error) < 500 and module.partition(".")[0] in _OWN and type(error) in _PLAIN


_OWN = frozenset({"agent_eventstore", "eventstore", "projections"})
_PLAIN = (ValueError, LookupError)
