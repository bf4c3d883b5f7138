"""What all pages share: templates, response headers, errors as pages, and the owner's views.

A page reads through `Views` alone, bound to the owner that the service found for the request. The
content security policy allows nothing inline and nothing from elsewhere; so no template may contain
a ``style`` attribute or a script.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable
from functools import cached_property, wraps
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode
from uuid import UUID

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from agent_eventstore.server.shared import Service
from agent_eventstore.server.viewer import figures, rich_text
from eventstore.errors import ConversationNotFound, EventStoreError, InvalidCursor, OwnerMismatch
from eventstore.ids import StreamId
from projections import Views

__all__ = ["HEADERS", "Frame", "PageError", "conversation_of", "place", "whole_number"]

Endpoint = Callable[[Request], Awaitable[Response]]

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; img-src 'self' data:; style-src 'self'; script-src 'self'; "
        "connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
_STATIC = "agent_eventstore.server.viewer"
_MEDIA = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


class PageError(Exception):
    """A problem that a page reports, with its HTTP status."""

    def __init__(self, status: int, title: str, message: str) -> None:
        super().__init__(message)
        self.status, self.title, self.message = status, title, message


class Frame:
    """Renders pages for one service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.environment = Environment(
            loader=PackageLoader(_STATIC, "templates"),
            autoescape=select_autoescape(default=True, default_for_string=True),
            undefined=StrictUndefined,
            finalize=_harmless,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.environment.filters.update(
            {name: getattr(figures, name) for name in figures.__all__}
            | {"visible": rich_text.visible, "first_line": rich_text.first_line, "path": _path}
        )
        self.environment.globals["query"] = _query

    def views(self, request: Request) -> Views:
        """Return the views of the request's owner."""
        return self.service.views_for(request)

    @cached_property
    def files(self) -> dict[str, tuple[bytes, str]]:
        """The scripts and styles, with their media types, by name."""
        folder = files(_STATIC) / "static"
        return {
            each.name: (each.read_bytes(), _MEDIA[each.name.rpartition(".")[2]])
            for each in folder.iterdir()
            if each.name.rpartition(".")[2] in _MEDIA
        }

    @cached_property
    def stamp(self) -> str:
        """A digest of all files, which is part of their addresses, so that they can be cached."""
        content = b"".join(content for _, (content, _) in sorted(self.files.items()))
        return hashlib.sha256(content).hexdigest()[:12]

    def file(self, request: Request) -> Response:
        """Return a script or style."""
        found = self.files.get(request.path_params["name"])
        if found is None:
            return PlainTextResponse("no such file", 404, HEADERS)
        content, media = found
        lasting = {"cache-control": "private, max-age=31536000, immutable"}
        return Response(content, headers={**HEADERS, **lasting}, media_type=media)

    def render(self, request: Request, template: str, **values: Any) -> str:
        """Return a template's text."""
        base = request.scope.get("root_path", "").rstrip("/")
        store = self.views(request).store
        return self.environment.get_template(template).render(
            base=base,
            stamp=self.stamp,
            database=_database(store),
            **values,
        )

    def page(self, request: Request, template: str, *, code: int = 200, **values: Any) -> Response:
        """Return a page."""
        return HTMLResponse(self.render(request, template, **values), code, HEADERS)

    def endpoint(self, handler: Callable[[Frame, Request], Response]) -> Endpoint:
        """Return a handler as an endpoint, run in a thread, with the library's errors as pages."""

        def answered(request: Request) -> Response:
            try:
                return handler(self, request)
            except PageError as error:
                status, title, message = error.status, error.title, error.message
            except (ConversationNotFound, OwnerMismatch):
                # The same answer for both: nobody learns which conversations others have.
                status, title = 404, "No such conversation"
                message = "It does not exist, was purged, or belongs to somebody else."
            except InvalidCursor as error:
                status, title, message = 400, "No such page", str(error)
            except EventStoreError as error:
                status, title, message = 500, "This cannot be shown", str(error)
            return self.page(
                request, "problem.html", code=status, title=title, message=message, section=""
            )

        @wraps(handler)
        async def answer(request: Request) -> Response:
            found = await self.service.run(answered, request)
            assert isinstance(found, Response)  # noqa: S101 - the service returns what was returned
            return found

        return answer


def conversation_of(request: Request) -> StreamId:
    """Return the conversation in a request's path: its id, or its key."""
    name = str(request.path_params["conversation"])
    try:
        return UUID(name)
    except ValueError:
        return name


def whole_number(request: Request, name: str, *, least: int = 0) -> int | None:
    """Return a whole number of the query; None if it is missing or empty.

    Raises:
        PageError: It is not a number, or too small or large.
    """
    text = request.query_params.get(name, "").strip().replace(",", "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and least <= int(text[:12]) < 2**31):
        raise PageError(400, "Not a number", f"{name} must be a whole number of at least {least}.")
    return int(text)


_PLACE = re.compile(r"([1-9][0-9]{0,8})(?:\.([0-9]{1,9}))?")


def place(request: Request, name: str) -> tuple[int, int] | None:
    """Return an item's place of the query, ``VERSION.PART`` or ``VERSION``; None without one.

    Raises:
        PageError: It is neither.
    """
    text = request.query_params.get(name, "").strip()
    if not text:
        return None
    found = _PLACE.fullmatch(text)
    if found is None:
        raise PageError(400, "Not a place", f"{name} must be a version, or VERSION.PART.")
    return int(found[1]), int(found[2] or 0)


def _harmless(value: object) -> object:
    """Return a text with its invisible characters shown; whatever a template prints passes here."""
    return rich_text.visible(value) if type(value) is str else value


def _path(text: object) -> str:
    return quote(str(text), safe="")


def _query(**values: Any) -> str:
    """Return a query string without empty values."""
    chosen = {name: value for name, value in values.items() if value not in (None, "", False)}
    return f"?{urlencode(chosen)}" if chosen else ""


def _database(store: Any) -> str:
    url = store.engine.url
    return str(url.database or "memory").rpartition("/")[2]
