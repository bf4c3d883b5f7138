"""`RequestGuard`: what every request passes before it reaches a route, whatever the route.

Its host and origin are checked, so that no web page that is open in the same browser can reach the
service under another name (DNS rebinding). Then comes who makes it: by token, by a proxy's header
or by the product's own hook. Bodies are bounded in size and time, and every response has headers
with which a browser runs only the service's own scripts.
"""

from __future__ import annotations

import hashlib
import hmac
import inspect
from collections.abc import Awaitable, Callable, Sequence
from http.cookies import SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_eventstore.server.problems import RequestProblem, problem_response
from agent_eventstore.server.shared import Identity, ServiceLimits

__all__ = ["CONTENT_SECURITY_POLICY", "LOOPBACK_NAMES", "Authenticate", "RequestGuard"]

Authenticate = Callable[[Request], Identity | Awaitable[Identity | None] | None]

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
"""The names under which only programs on the same machine reach a service."""

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; img-src 'self' data:; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)

_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_TOKEN = "token"  # noqa: S105 - the name of the parameter


class RequestGuard:
    """Refuses what must not reach the application, and adds the security headers.

    A token is sent as ``Authorization: Bearer TOKEN``, or once as ``?token=TOKEN`` in the address
    of a page: the browser then gets a cookie that no script can read and no other site can send.

    Args:
        app: The application.
        authenticate: The product's hook; see `create_app`.
        token: The token.
        user_header: The header that names the user.
        hosts: The host names, without ports.
        read_only: Whether requests that write are refused.
        limits: The bounds of bodies.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        authenticate: Authenticate | None,
        token: str | None,
        user_header: str | None,
        hosts: Sequence[str],
        read_only: bool,
        limits: ServiceLimits,
    ) -> None:
        self.app = app
        self._authenticate, self._token, self._user_header = authenticate, token, user_header
        self._hosts = frozenset(host.lower().strip("[]") for host in hosts)
        self._read_only, self._limits = read_only, limits
        secret = (token or "").encode()
        mark = hashlib.sha256(b"eventstore cookie name " + secret).hexdigest()[:12]
        self._cookie = f"eventstore_{mark}"  # cookies of all ports of a host are one set
        self._cookie_value = hmac.new(secret, b"eventstore cookie", hashlib.sha256).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            else:
                await self.app(scope, receive, send)
            return

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            redirect = await self._admit(scope, receive)
        except RequestProblem as problem:
            await problem_response(problem)(scope, receive, secured)
            return
        if redirect is not None:
            await redirect(scope, receive, secured)
            return
        await self.app(scope, _Body(receive, self._limits).receive, secured)

    async def _admit(self, scope: Scope, receive: Receive) -> RedirectResponse | None:
        """Find out who makes a request; return a redirect if it brings the token in its address.

        Raises:
            RequestProblem: It is refused.
        """
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if "*" not in self._hosts and _name_of(host) not in self._hosts:
            raise RequestProblem(
                421,
                f"this service is not called {host!r:.100}: use one of its names, which "
                "create_app(hosts=...) or eventstore serve --allow-host adds to",
            )
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            raise RequestProblem(403, f"requests of pages from {origin!r:.100} are refused")
        if self._read_only and scope["method"] not in _READING:
            raise RequestProblem(403, "this service is read-only")
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdecimal():
            raise RequestProblem(400, "Content-Length is not a number")
        if len(length) > 18 or int(length) > self._limits.body_bytes:
            raise _too_large(self._limits)
        if self._token is not None:
            redirect = self._check_token(scope, headers)
            if redirect is not None:
                return redirect
        scope["eventstore.identity"] = await self._identity(scope, receive, headers)
        return None

    def _check_token(self, scope: Scope, headers: Headers) -> RedirectResponse | None:
        scheme, _, sent = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            if self._is_token(sent.strip()):
                return None
            raise _unauthorized("the token is wrong")
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if scope["method"] == "GET" and (given := dict(query).get(_TOKEN)) is not None:
            if not self._is_token(given):
                raise _unauthorized("the token is wrong")
            return self._redirect(scope, [pair for pair in query if pair[0] != _TOKEN])
        if hmac.compare_digest(_cookie_in(headers, self._cookie), self._cookie_value):
            return None
        raise _unauthorized(
            "a token is required: send it as Authorization: Bearer TOKEN, or open the address "
            "that eventstore serve printed"
        )

    def _is_token(self, sent: str) -> bool:
        return hmac.compare_digest(sent.encode(), str(self._token).encode())

    def _redirect(self, scope: Scope, query: list[tuple[str, str]]) -> RedirectResponse:
        """Return a redirect to the same page without the token, which is now in a cookie."""
        path = "/" + scope["path"].lstrip("/")  # never another host's address, as in //host
        response = RedirectResponse(path + (f"?{urlencode(query)}" if query else ""), 303)
        response.set_cookie(
            self._cookie,
            self._cookie_value,
            path=scope.get("root_path") or "/",
            secure=scope.get("scheme") == "https",
            httponly=True,
            samesite="strict",
        )
        return response

    async def _identity(self, scope: Scope, receive: Receive, headers: Headers) -> Identity:
        if self._authenticate is not None:
            found = self._authenticate(Request(scope, receive))
            identity = await found if inspect.isawaitable(found) else found
            if identity is None:
                raise _unauthorized("the product does not know who makes this request")
            return identity
        if self._user_header is None:
            return Identity()
        named = headers.getlist(self._user_header)
        if len(named) != 1 or not named[0].strip():
            raise _unauthorized(
                f"the header {self._user_header} must name the user once: the proxy sets it"
            )
        return Identity(user_id=named[0].strip().encode("latin-1").decode("utf-8", "replace"))


class _Body:
    """A request's body, within the bounds of size and time."""

    def __init__(self, receive: Receive, limits: ServiceLimits) -> None:
        self._receive, self._limits = receive, limits
        self._size, self._complete = 0, False
        self._until: float | None = None

    async def receive(self) -> Message:
        """Return the next message of the server.

        Raises:
            RequestProblem: The body is too large, or too slow.
        """
        if self._complete:
            return await self._receive()
        if self._until is None:
            self._until = anyio.current_time() + self._limits.body_s
        try:
            with anyio.fail_after(self._until - anyio.current_time()):
                message = await self._receive()
        except TimeoutError as error:
            raise RequestProblem(
                408, f"the body did not arrive within {self._limits.body_s:g} seconds"
            ) from error
        self._size += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        if self._size > self._limits.body_bytes:
            raise _too_large(self._limits)
        return message


def _too_large(limits: ServiceLimits) -> RequestProblem:
    return RequestProblem(413, f"the body is larger than {limits.body_bytes:,} bytes")


def _unauthorized(detail: str) -> RequestProblem:
    return RequestProblem(401, detail, headers={"WWW-Authenticate": "Bearer"})


def _name_of(host: str) -> str:
    """Return the host name of a ``Host`` header, without its port and the brackets of IPv6."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _cookie_in(headers: Headers, name: str) -> str:
    cookies: SimpleCookie = SimpleCookie()
    try:
        cookies.load(headers.get("cookie", ""))
    except ValueError:  # http.cookies.CookieError
        return ""
    found = cookies.get(name)
    return "" if found is None or not found.value.isascii() else found.value
