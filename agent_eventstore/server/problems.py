"""Errors as ``application/problem+json`` (RFC 9457), with the library's own messages.

A conversation of another owner is answered exactly like one that does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from agent_eventstore import errors
from agent_eventstore.documents import json_bytes
from eventstore.telemetry.log import get_logger

__all__ = ["RequestProblem", "handlers", "problem_response", "refused", "status_of"]

MEDIA_TYPE = "application/problem+json"

_HARMLESS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

_log = get_logger("agent_eventstore")

_STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (errors.ConversationNotFound, 404),
    (errors.BlobNotFound, 404),
    (errors.UnknownAlias, 404),
    (errors.WrongThread, 409),
    (errors.OwnerMismatch, 403),
    (errors.ConversationInUse, 409),
    (errors.TurnRunning, 409),
    (errors.TurnStillOpen, 409),
    (errors.TurnStopped, 409),
    (errors.WriterFenced, 409),
    (errors.WrongExpectedVersion, 409),
    (errors.ConversationEnded, 409),
    (errors.ConversationArchived, 409),
    (errors.ConversationForked, 409),
    (errors.EventsShared, 409),
    (errors.BranchRefused, 409),
    (errors.ForkRefused, 409),
    (errors.RequestNotReproducible, 409),
    (errors.BudgetInfeasible, 422),
    (errors.PromptTooLong, 422),
    (errors.ConversationDamaged, 500),
    (errors.EventDamaged, 500),
    (errors.RowDamaged, 500),
    (errors.BlobDamaged, 500),
    (errors.ProjectionFailed, 500),
    (errors.ArchiveFailed, 503),
    (errors.FactsNotWritten, 503),
    (errors.KeyUnavailable, 503),
    (errors.GenerationGone, 503),
    (errors.StoreClosed, 503),
    (errors.StoreUnavailable, 503),
    (ValueError, 400),
    (LookupError, 404),
)


class RequestProblem(Exception):
    """A request that is refused, with its status and the reason.

    Args:
        status: The HTTP status.
        detail: What is wrong, and what to do.
        headers: More headers of the response.
        more: More members of the document.
    """

    def __init__(
        self, status: int, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(status, detail)
        self.status, self.detail = status, detail
        self.headers, self.more = dict(headers or {}), more

    def __str__(self) -> str:
        return self.detail


def status_of(error: Exception) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, RequestProblem):
        return error.status
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def document_of(error: Exception) -> dict[str, Any]:
    """Return the document that describes an error."""
    status = status_of(error)
    more: dict[str, Any] = {}
    detail, name = str(error), type(error).__name__
    if isinstance(error, RequestProblem):
        more = error.more
    elif isinstance(error, errors.OwnerMismatch) and error.conversation_id is not None:
        # That it exists is known to its owner alone.
        hidden = errors.ConversationNotFound(error.conversation_id)
        status, detail, name = 404, str(hidden), type(hidden).__name__
    elif isinstance(error, errors.EventStoreError):
        found = getattr(error, "conversation_id", None)
        more = {} if found is None else {"conversation_id": str(found)}
    elif status == 500:
        detail = "the server has failed; its log says why"
    if name == "ConversationNotFound":
        more = {}
    if not isinstance(error, RequestProblem):
        more = {"error": name, **more}
    return {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        **more,
    }


def problem_response(error: Exception) -> Response:
    """Return the response to a request that has failed."""
    document = document_of(error)
    headers = error.headers if isinstance(error, RequestProblem) else {}
    return Response(
        json_bytes(document),
        status_code=document["status"],
        # A failure is answered outside of the guard, which gives other responses their headers.
        headers={"Cache-Control": "no-store", **_HARMLESS, **headers},
        media_type=MEDIA_TYPE,
    )


async def refused(request: Request, error: Exception) -> Response:
    """Answer a request that has failed, and log what is the server's fault."""
    if status_of(error) >= 500:
        _log.warning("request failed", path=request.url.path, reason=f"{error!r:.500}")
    return problem_response(error)


async def _failed(request: Request, error: Exception) -> Response:
    _log.warning("request failed", path=request.url.path, reason=f"{error!r:.500}")
    return problem_response(RequestProblem(500, "the server has failed: its log says why"))


async def _unrouted(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
    return problem_response(
        RequestProblem(error.status_code, str(error.detail), headers=dict(error.headers or {}))
    )


handlers: dict[Any, Any] = {
    RequestProblem: refused,
    HTTPException: _unrouted,
    errors.EventStoreError: refused,
    Exception: _failed,
}
"""Exception handlers of a Starlette application."""
