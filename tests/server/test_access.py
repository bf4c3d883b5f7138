"""Who may reach the service: tokens, hosts, origins, bounds of bodies, and hostile input."""

from __future__ import annotations

import json
import socket
from urllib.parse import urlsplit

import httpx
import pytest

from agent_eventstore.server import create_app
from agent_eventstore.server.shared import ServiceLimits
from eventstore import EventStore
from tests.server.serving import TOKEN, Answering, Running, running

LISTED = "/api/conversations"


def test_without_a_token_nothing_is_served(service: Running) -> None:
    """No token, a wrong one or a wrong cookie: 401, whatever the path."""
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Cookie": "eventstore_x=1; \x01=2"},
        {"Authorization": "Bearer \xff"},
    ):
        for path in (LISTED, "/", "/nothing", "/api/openapi.json", "/streams/x?token=wrong"):
            encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
            found = httpx.get(f"{service.address}{path}", headers=encoded)
            assert found.status_code == 401, (path, headers)
            assert found.headers["content-type"] == "application/problem+json"


def test_the_token_in_an_address_becomes_a_cookie(service: Running) -> None:
    """It leaves the address at once; the cookie is hidden from scripts and other sites."""
    with httpx.Client(base_url=service.address) as browser:
        found = browser.get(LISTED, params={"token": TOKEN, "limit": "1"})
        assert found.status_code == 303
        assert found.headers["location"] == f"{LISTED}?limit=1"
        cookie = found.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert TOKEN not in cookie
        assert browser.get(found.headers["location"]).status_code == 200
        elsewhere = browser.get("//other.example/", params={"token": TOKEN})
        assert urlsplit(elsewhere.headers["location"]).netloc == ""


def test_other_names_and_origins_are_refused(service: Running) -> None:
    """A page that reaches the address under another name, or from another site, gets nothing."""
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", ""):
        assert service.client.get(LISTED, headers={"Host": host}).status_code == 421, host
    port = urlsplit(service.address).port
    for name in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}", "LOCALHOST"):
        assert service.client.get(LISTED, headers={"Host": name}).status_code == 200, name
    for origin in ("https://evil.example", "null", f"http://localhost:{port}"):
        refused = service.client.post(LISTED, json={}, headers={"Origin": origin})
        assert refused.status_code == 403, origin
    own = service.client.post(LISTED, json={}, headers={"Origin": service.address})
    assert own.status_code == 201
    assert "access-control-allow-origin" not in own.headers


def test_every_response_has_the_headers_of_security(service: Running) -> None:
    """Also errors, and what no route answers."""
    for path in (LISTED, "/nothing", f"{LISTED}/{'x' * 2_000}"):
        headers = service.client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"


def test_bodies_are_bounded(store: EventStore) -> None:
    """In size, whether or not the size is announced, and in time."""
    limits = ServiceLimits(body_bytes=1_000, body_s=0.3)
    with running(store, models={"tom": Answering("tom")}, limits=limits) as service:
        text = json.dumps({"message": "x" * 2_000})
        sent = {"Content-Type": "application/json"}
        assert service.client.post("/api/chat", content=text, headers=sent).status_code == 413
        pieces = (text[at : at + 100].encode() for at in range(0, len(text), 100))
        assert service.client.post("/api/chat", content=pieces, headers=sent).status_code == 413
        address = urlsplit(service.address)
        with socket.create_connection((str(address.hostname), address.port or 0)) as slow:
            slow.settimeout(10)
            slow.sendall(
                f"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
                "Content-Type: application/json\r\nContent-Length: 900\r\n\r\n{".encode()
            )
            assert b"408" in slow.recv(100)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b'"text"', 400),
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b"[" * 100_000, 400),
        (b'{"message": NaN}', 400),
        (b'{"message": ""}', 400),
        (b'{"message": 1}', 400),
        (b'{"message": "x", "unknown": 1}', 400),
        (b'{"message": "x", "thread_id": "\\u0000"}', 404),
        (b'{"message": "x", "thread_id": "nothing"}', 404),
        (b'{"message": "x", "mode": "workflow", "role_config": {"coder": "nobody"}}', 400),
    ],
)
def test_bad_bodies_are_refused(service: Running, body: bytes, status: int) -> None:
    """With a problem that says what is wrong, and nothing written."""
    headers = {"Content-Type": "application/json"}
    found = service.client.post("/api/chat", content=body, headers=headers)
    assert found.status_code == status, found.text
    assert found.headers["content-type"] == "application/problem+json"
    assert found.json()["detail"]
    assert service.client.get(LISTED).json()["conversations"] == []


def test_a_body_must_be_json(service: Running) -> None:
    """A form that another site could send is no request."""
    found = service.client.post("/api/chat", data={"message": "x"})
    assert found.status_code == 415


def test_hostile_text_comes_back_as_it_was(service: Running) -> None:
    """Scripts, terminal escapes, lone surrogates and direction marks are data."""
    text = '<script>alert(1)</script>\x1b[31m\u202e"\u2028\r\n\r\n data: x\n'
    thread = service.chat(text)["thread_id"]
    items = service.client.get(f"{LISTED}/{thread}/timeline").json()["items"]
    assert next(each["text"] for each in items if each["kind"] == "user") == text
    lone = service.client.post(
        "/api/chat",
        content=b'{"message": "\\ud800 alone"}',
        headers={"Content-Type": "application/json"},
    )
    assert lone.status_code in (200, 400)


@pytest.mark.parametrize(
    "path",
    [
        "{c}/timeline?limit=0",
        "{c}/timeline?limit=501",
        "{c}/timeline?limit=1&limit=2",
        "{c}/timeline?at=999999",
        "{c}/timeline?after=-1",
        "{c}/context?format=nothing",
        "{c}/context?strategy=nothing",
        "{c}/context?of=1",
        "{c}/context?of=1&model=x",
        "{c}/context?max_tokens=-5",
        "{c}/context?max_tokens=1",
        "{c}/usage?by=nothing",
        "{c}/usage?since=2026-01-01T00:00:00",
        "{c}/tool-calls?status=nothing",
        "{c}/export?format=project",
        "{c}/events?after=99999999999999999999",
        "?after=nothing",
        "?status=nothing",
        "?unknown=1",
    ],
)
def test_bad_queries_are_refused(service: Running, path: str) -> None:
    """Each with a status of the client's fault and the library's message."""
    made = service.client.post(LISTED, json={}).json()["conversation_id"]
    found = service.client.get(f"{LISTED}{path.replace('{c}', f'/{made}')}")
    assert found.status_code in (400, 404, 409, 422), found.text
    assert found.json()["detail"]


def test_read_only(store: EventStore) -> None:
    """Every change is refused, whatever the route."""
    with running(store, models={"tom": Answering("tom")}, read_only=True) as service:
        assert service.client.get(LISTED).status_code == 200
        paths = service.client.get("/api/openapi.json").json()["paths"]
        for path, operations in paths.items():
            for method in set(operations) - {"get", "head"}:
                place = path.replace("{conversation}", "x")
                assert service.client.request(method.upper(), place, json={}).status_code == 403


def test_nobody_is_not_everybody(store: EventStore) -> None:
    """An application that says nothing about who may read is refused when it is made."""
    with pytest.raises(ValueError, match="who may read"):
        create_app(store)
