"""The viewer's pages over a store: each answers, escapes what it shows, and keeps to its owner."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount
from starlette.testclient import TestClient

from agent_eventstore import Conversation, EventStore
from agent_eventstore.server import create_app
from agent_eventstore.server.shared import Identity
from agent_eventstore.server.viewer import conversation_list, rich_text, sql_box
from eventstore import new_id
from eventstore.events import UserMessage

HOSTILE = "<script>alert(1)</script> <img src=x onerror=alert(2)> \x1b[31mred\u202egnp.exe"


def _owner_of(request: Request) -> Identity:
    return Identity(user_id=request.headers.get("x-user"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EventStore]:
    """Give a store in a file, which the SQL box opens on its own."""
    with EventStore.open(f"sqlite:///{tmp_path / 'viewer.db'}") as opened:
        yield opened


@pytest.fixture
def client(store: EventStore) -> TestClient:
    """Give a client that is everybody, or the user in a header."""
    app = create_app(store, authenticate=_owner_of, hosts=["testserver"])
    return TestClient(app, raise_server_exceptions=True)


def _recorded(
    store: EventStore, text: str = "Where is A-1?", limit: int = 4_000, **options: Any
) -> tuple[UUID, int]:
    """Record a turn with a tool call; return the conversation and its last request's version."""
    with Conversation.start(store, **{"user_id": "ada", **options}) as conversation:
        with conversation.turn(text) as turn:
            with turn.llm_call(turn.context(max_tokens=limit, model="gpt-4o")) as call:
                asked = {"name": "status", "arguments": '{"id": "A-1"}', "id": "c1"}
                call.message(text, tool_calls=[asked])
            with turn.tool(call.tool_calls[0]) as tool:
                tool.result(text)
            with turn.llm_call(turn.context(max_tokens=limit, model="gpt-4o")) as call:
                used = {"prompt_tokens": 100, "completion_tokens": 10}
                call.message("It was **shipped**.", usage=used)
    requests = [each.version for each in store.read(conversation.id) if each.type == "llm_request"]
    return conversation.id, requests[-1]


def _paths(stream: UUID, version: int) -> list[str]:
    return [
        "/",
        "/?q=shipped",
        "/?part=rows&errors=1&model=gpt-4o",
        "/?tenant=t&tool=status&cost=0.01&status=open",
        f"/c/{stream}",
        f"/c/{stream}?at=5",
        f"/c/{stream}?before=9&part=items",
        f"/c/{stream}/items?after=3",
        f"/c/{stream}?part=aside",
        f"/c/{stream}/outline",
        f"/c/{stream}/r/{version}",
        f"/c/{stream}/r/{version}?max_tokens=2000&strategy=retrieval&format=anthropic_messages",
        f"/c/{stream}/next",
        f"/c/{stream}/why?q=A-1",
        "/usage",
        "/tools",
        "/tools?status=success&tool=status",
        "/operations",
        "/operations?doctor=1&verify=1&heads=1",
    ]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, {"ada's", "eve's", "idle"}),
        ({"user": "ada"}, {"ada's"}),
        ({"tenant": "acme"}, {"eve's"}),
        ({"user": "ada", "tenant": "acme"}, set()),
        ({"tool": "status"}, {"ada's", "eve's"}),
        ({"tool": "status", "model": "gpt-4o", "tenant": "acme"}, {"eve's"}),
        ({"model": "gpt-0"}, set()),
        ({"cost": "0.000001"}, {"ada's", "eve's"}),
        ({"cost": "1000"}, set()),
        ({"cost": "much"}, {"ada's", "eve's", "idle"}),
        ({"errors": "1"}, set()),
        ({"status": "archived"}, {"idle"}),
        ({"status": "lost"}, {"ada's", "eve's", "idle"}),
    ],
)
def test_the_list_is_filtered(
    store: EventStore, client: TestClient, filters: dict[str, str], expected: set[str]
) -> None:
    """Each filter alone and together; what no filter can mean is left out."""
    _recorded(store, title="ada's")
    _recorded(store, title="eve's", user_id="eve", tenant_id="acme")
    with Conversation.start(store, title="idle") as idle:
        idle.archive()
    shown = client.get("/", params={"part": "rows", **filters}).text
    assert expected == {title for title in ("ada's", "eve's", "idle") if title in unescape(shown)}


def test_a_filter_goes_on_from_where_it_looked(
    store: EventStore, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that looked at as many as it may says so, and leads to the next."""
    monkeypatch.setattr(conversation_list, "_SCANNED", 10)
    monkeypatch.setattr(conversation_list, "_PAGE", 5)
    stream, _ = _recorded(store)
    for _ in range(12):
        store.append(new_id(), UserMessage.text("hello"))
    first = client.get("/?part=rows&tool=status").text
    assert "0 shown of the 10 looked at" in first
    [older] = re.findall(r'href="(/[^"]*after=[^"]*)"', first)
    assert str(stream) in client.get(f"{unescape(older)}&part=rows").text


def test_operations_show_who_has_what_open(store: EventStore, client: TestClient) -> None:
    """A conversation that rests in an open session has no open work, but a writer."""
    with Conversation.start(store, user_id="ada") as conversation:
        assert conversation.id in [each.conversation_id for each in store.writers()]
        assert str(conversation.id) in client.get("/operations").text
        assert [] == store.writers(user_id="eve")
    assert [] == store.writers()
    assert "No process has a conversation open." in client.get("/operations").text


def test_every_page_answers_with_the_policy(store: EventStore, client: TestClient) -> None:
    """No page fails, and each forbids scripts that are not the viewer's."""
    for path in _paths(*_recorded(store)):
        answer = client.get(path)
        assert answer.status_code == 200, path
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy


def test_every_page_answers_on_both_databases(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that reads plain SQL does so on PostgreSQL too, and writes nothing there."""
    monkeypatch.setattr(sql_box, "_SECONDS", 0.3)
    with EventStore.open(database_url) as store:
        client = TestClient(create_app(store, authenticate=_owner_of, hosts=["testserver"]))
        for path in _paths(*_recorded(store)):
            assert client.get(path).status_code == 200, path
        answer = sql_box.query(store, "SELECT name FROM tool_calls WHERE name LIKE 'sta%'")
        assert list(answer.rows) == [["status"]]
        assert sql_box.query(store, "DELETE FROM conversations").problem
        for statement in (
            "SELECT 1; COMMIT; CREATE TABLE written (a int)",
            "WITH gone AS (DELETE FROM projection_heads RETURNING 1) SELECT * FROM gone",
            "SELECT set_config('transaction_read_only', 'off', true)",
            "SELECT pg_sleep(60)",
        ):
            assert sql_box.query(store, statement).problem, statement


def test_no_page_has_inline_styles_or_scripts(store: EventStore, client: TestClient) -> None:
    """The policy would break a page that relied on them."""
    for path in _paths(*_recorded(store)):
        text = client.get(path).text
        assert " style=" not in text, path
        assert not re.search(r"<script(?![^>]*\ssrc=)", text), path
        assert not re.search(r"<[^>]*\son\w+=", text), path


def test_hostile_text_is_shown_and_not_run(store: EventStore, client: TestClient) -> None:
    """Scripts, terminal escapes and a reversed writing direction are shown as what they are."""
    stream, version = _recorded(store, HOSTILE, title=HOSTILE)
    call = next(each for each in store.read(stream) if each.type == "tool_call")
    call_id = vars(call.data)["call_id"]
    for path in [*_paths(stream, version), f"/c/{stream}/call/{call_id}", "/?q=alert"]:
        text = client.get(path).text
        assert "<script>" not in text, path
        assert "<img src=x" not in text, path
        assert "\x1b" not in text, path
        assert "\u202e" not in text, path


def test_a_megabyte_is_shown_in_part(store: EventStore, client: TestClient) -> None:
    """A page stays small; the whole text has its own address, and is plain text."""
    stream, version = _recorded(store, "long " * 200_000, limit=900_000)
    page = client.get(f"/c/{stream}")
    assert len(page.text) < 200_000
    whole = re.search(r"/c/[^\"]+/text/\d+/\d+", page.text)
    assert whole is not None
    text = client.get(whole[0])
    assert text.headers["content-type"].startswith("text/plain")
    assert len(text.text) > 900_000
    assert len(client.get(f"/c/{stream}/r/{version}").text) < 600_000


def test_another_owners_conversation_is_not_found(store: EventStore, client: TestClient) -> None:
    """The answer is the same as for a conversation that does not exist."""
    stream, version = _recorded(store)
    others = {"x-user": "bob"}
    missing = client.get(f"/c/{UUID(int=7)}", headers=others)
    assert missing.status_code == 404
    for path in _paths(stream, version):
        answer = client.get(path, headers=others)
        if path.startswith("/c/"):
            assert answer.status_code == 404, path
            assert answer.text == missing.text, path
        else:
            assert str(stream) not in answer.text, path


def test_only_a_request_without_an_owner_may_ask_in_sql(
    store: EventStore, client: TestClient
) -> None:
    """SQL knows no owners."""
    _recorded(store)
    query = {"sql": "SELECT name, 6 * 7 FROM tool_calls"}
    assert "42" in client.get("/tools", params=query).text
    bound = client.get("/tools", params=query, headers={"x-user": "ada"}).text
    assert "SQL" not in bound
    assert ">42<" not in bound


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM conversations",
        "ATTACH DATABASE '/tmp/other.db' AS other",
        "PRAGMA query_only = OFF",
        "SELECT load_extension('x')",
        "CREATE TABLE t (a)",
        "SELECT 1; DELETE FROM conversations",
    ],
)
def test_sql_writes_nothing(store: EventStore, statement: str) -> None:
    """The database itself refuses."""
    stream, _ = _recorded(store)
    assert sql_box.query(store, statement).problem
    assert store.get(stream).version


def test_an_endless_query_is_ended(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query may not occupy a thread for longer than the limit."""
    monkeypatch.setattr(sql_box, "_SECONDS", 0.05)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    assert "longer than" in sql_box.query(store, endless).problem


def test_links_carry_the_prefix_of_a_mounted_application(store: EventStore) -> None:
    """Every address of a page begins with the path under which the application is mounted."""
    stream, version = _recorded(store)
    inner = create_app(store, authenticate=_owner_of, hosts=["testserver"])
    client = TestClient(Starlette(routes=[Mount("/inside", app=inner)]))
    for path in _paths(stream, version):
        text = client.get(f"/inside{path}").text
        for address in re.findall(r'(?:href|src|action)="(/[^"]*)"', text):
            assert address.startswith("/inside/"), (path, address)
    style = client.get("/inside/static/viewer.css")
    assert style.headers["content-type"].startswith("text/css")


def test_changed_rows_are_those_after_the_version(store: EventStore, client: TestClient) -> None:
    """The script gets the rows that it lacks, and the version to continue from."""
    stream, _ = _recorded(store)
    last = store.get(stream).version
    assert 'data-v="' not in client.get(f"/c/{stream}/items?after={last}").text
    text = client.get(f"/c/{stream}/items?after=4").text
    assert "<strong>shipped</strong>" in text
    assert 'data-last="' in text


@pytest.mark.parametrize(
    ("text", "shown", "absent"),
    [
        ("[x](javascript:alert(1))", "x", "javascript:"),
        ("![p](https://tracker.example/p.gif)", "image not loaded", "<img"),
        ("![p](data:image/svg+xml;base64,PHN2Zz4=)", "image not loaded", "<img"),
        ("![p](data:image/png;base64,iVBORw0KGgo=)", "<img", "not loaded"),
        ("# Title", "<h3>Title</h3>", "<h1"),
        ("[x](data:text/html;base64,PHNjcmlwdD4=)", "x", "href"),
    ],
)
def test_markdown_is_harmless(text: str, shown: str, absent: str) -> None:
    """Links and images lead nowhere unless that is safe; headings are below the page's own."""
    html = str(rich_text.prose(text))
    assert shown in html
    assert absent not in html


def test_bad_addresses_are_pages_too(store: EventStore, client: TestClient) -> None:
    """A wrong number or an unknown name is answered with its problem, not with a failure."""
    stream, version = _recorded(store)
    for path, status in (
        (f"/c/{stream}?at=x", 400),
        (f"/c/{stream}/r/1", 404),
        (f"/c/{stream}/r/{version}?strategy=none", 400),
        (f"/c/{stream}/r/{version}?max_tokens=1", 400),
        (f"/c/{stream}/call/99.0", 404),
        ("/c/no-such-key", 404),
        ("/?after=nonsense", 400),
    ):
        assert client.get(path).status_code == status, path


def test_the_outline_is_without_marks(store: EventStore, client: TestClient) -> None:
    """A message's first line stands there as its reader sees it; other stars stay."""
    with Conversation.start(store, key="marked") as conversation:
        with conversation.turn("**Fix** `a.py`: 2 ** 3 and a*b"):
            pass
    page = client.get("/c/marked/outline").text
    assert "Fix a.py: 2 ** 3 and a*b" in page
