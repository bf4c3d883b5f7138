"""Following a conversation: server-sent events, resume after a kill, and durable streams."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from typing import Any

import pytest

from agent_eventstore import Conversation
from agent_eventstore.server.shared import ServiceLimits
from eventstore import EventStore
from projections import Views
from tests.server.serving import (
    TOKEN,
    Answering,
    KillableServer,
    Running,
    events_in,
    running,
)

CURL = shutil.which("curl")


def followed(service: Running, thread: str, until: int, **headers: str) -> list[Any]:
    """Return the events of the follow stream up to a version."""
    found = []
    place = f"/api/conversations/{thread}/follow"
    with service.client.stream("GET", place, headers=headers) as response:
        assert response.status_code == 200
        for _, own_id, data in events_in(response.iter_lines()):
            found.append((own_id, data))
            if data["version"] >= until:
                return found
    return found


def test_a_follower_goes_on_where_it_was(service: Running, store: EventStore) -> None:
    """With Last-Event-ID, each change comes once; together they are the timeline."""
    thread = service.chat("@tom one")["thread_id"]
    first = followed(service, thread, store.get(thread).version - 1)
    last = first[-1][0]
    service.chat("@ann two", thread_id=thread)
    again = followed(service, thread, int(last) + 5, **{"Last-Event-ID": last})
    assert all(data["version"] > int(last) for _, data in again)
    texts = [
        change["item"]["text"]
        for _, data in (*first, *again)
        for change in data["changes"]
        if change["kind"] == "added" and change["item"]["kind"] == "user"
    ]
    assert texts == ["@tom one", "@ann two"]
    for wrong, status in (("x", 400), ("999999", 409), ("9" * 17, 400)):
        found = service.client.get(
            f"/api/conversations/{thread}/follow", headers={"Last-Event-ID": wrong}
        )
        assert found.status_code == status


def test_streams_are_bounded(store: EventStore) -> None:
    """Beyond the limit a stream is refused, and its place is free once a client has left."""
    limits = ServiceLimits(followers=1, heartbeat_s=0.2)
    with running(store, models={"tom": Answering("tom")}, limits=limits) as service:
        thread = service.chat("hi")["thread_id"]
        place = f"/api/conversations/{thread}/follow"
        with service.client.stream("GET", place) as response:
            lines = response.iter_lines()
            next(lines)
            refused = service.client.get(place)
            assert refused.status_code == 503
            assert refused.headers["retry-after"]
        for _ in range(100):
            with service.client.stream("GET", place) as response:
                if response.status_code == 200:
                    return
            time.sleep(0.05)
        pytest.fail("the place of a client that has left is never free")


def test_a_durable_stream(service: Running, store: EventStore) -> None:
    """Catch-up by offsets, ETag, HEAD, the sentinels, and what is refused."""
    thread = service.chat("@tom one")["thread_id"]
    version, place = store.get(thread).version, f"/streams/{thread}"
    tail = f"{version:016}"
    head = service.client.head(place)
    assert (head.status_code, head.headers["stream-next-offset"]) == (200, tail)
    assert head.headers["cache-control"] == "no-store"
    whole = service.client.get(place)
    assert [each["version"] for each in whole.json()] == list(range(1, version + 1))
    assert whole.headers["stream-next-offset"] == tail
    assert whole.headers["stream-up-to-date"] == "true"
    assert "stream-closed" not in whole.headers
    assert service.client.get(place, params={"offset": "-1"}).json() == whole.json()
    same = service.client.get(place, headers={"If-None-Match": whole.headers["etag"]})
    assert same.status_code == 304
    rest = service.client.get(place, params={"offset": f"{3:016}"})
    assert rest.json() == whole.json()[3:]
    empty = service.client.get(place, params={"offset": tail})
    assert (empty.json(), empty.headers["stream-up-to-date"]) == ([], "true")
    now = service.client.get(place, params={"offset": "now"})
    assert (now.json(), now.headers["stream-next-offset"]) == ([], tail)
    assert "etag" not in now.headers
    for wrong in (
        {"offset": ""},
        {"offset": "x"},
        {"offset": f"{10**15:016}"},
        {"live": "sse"},
        {"live": "nothing", "offset": "-1"},
        {"offset": "1"},
    ):
        assert service.client.get(place, params=wrong).status_code == 400, wrong
    assert service.client.get(place, params={"unknown": "x"}).json() == whole.json()
    assert service.client.get("/streams/nothing").status_code == 404
    screen = service.client.get(place, params={"view": "timeline"}).json()
    added = [each["item"]["kind"] for each in screen[0]["changes"]]
    assert {"user", "assistant"} <= set(added)


def test_a_long_poll_waits_for_news(store: EventStore) -> None:
    """It returns as soon as there is something, with 204 if there is not, and with a cursor."""
    limits = ServiceLimits(long_poll_s=0.5)
    with running(store, models={"tom": Answering("tom")}, limits=limits) as service:
        thread = service.chat("one")["thread_id"]
        place = f"/streams/{thread}"
        params = {"offset": "now", "live": "long-poll"}
        quiet = service.client.get(place, params=params)
        assert quiet.status_code == 204
        assert quiet.headers["stream-up-to-date"] == "true"
        cursor = quiet.headers["stream-cursor"]
        params = {"offset": quiet.headers["stream-next-offset"], "live": "long-poll"}
        sender = threading.Timer(0.1, service.chat, args=("two",), kwargs={"thread_id": thread})
        sender.start()
        news = service.client.get(place, params={**params, "cursor": cursor})
        sender.join()
        assert news.status_code == 200
        assert news.json()[0]["version"] == int(params["offset"]) + 1
        assert int(news.headers["stream-cursor"]) > int(cursor)


def test_a_destroyed_conversation_is_a_closed_stream(service: Running, store: EventStore) -> None:
    """The end is signalled in every mode, at once."""
    thread = service.chat("@tom one")["thread_id"]
    place = f"/streams/{thread}"
    before = service.client.get(place)
    service.client.post(f"/api/conversations/{thread}/end", json={})
    whole = service.client.get(place)
    assert whole.headers["stream-closed"] == "true"
    assert whole.headers["etag"] != before.headers["etag"]
    assert service.client.head(place).headers["stream-closed"] == "true"
    tail = whole.headers["stream-next-offset"]
    for offset in (tail, "now"):
        params = {"offset": offset, "live": "long-poll"}
        polled = service.client.get(place, params=params)
        assert (polled.status_code, polled.headers["stream-closed"]) == (204, "true")
    params = {"offset": tail, "live": "sse"}
    with service.client.stream("GET", place, params=params) as response:
        [(name, _, control)] = list(events_in(response.iter_lines()))
    assert name == "control"
    assert (control["streamClosed"], control["streamNextOffset"]) == (True, tail)


def test_a_live_durable_stream(service: Running, store: EventStore) -> None:
    """Server-sent events: data as an array, each followed by the offset to continue from."""
    thread = service.chat("@tom one")["thread_id"]
    tail = store.get(thread).version
    params = {"offset": "-1", "live": "sse"}
    with service.client.stream("GET", f"/streams/{thread}", params=params) as response:
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["cache-control"] == "no-cache, no-store"
        found = events_in(response.iter_lines())
        name, _, data = next(found)
        assert (name, len(data)) == ("data", tail)
        name, _, control = next(found)
        assert (name, control["upToDate"]) == ("control", True)
        assert int(control["streamNextOffset"]) == tail
        assert control["streamCursor"]
        with Conversation.open(store, thread) as conversation:
            conversation.rename("new")
        name, _, data = next(found)
        assert name == "data"
        assert data[0]["version"] == tail + 1


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_client_goes_on_after_the_server_was_killed(database_url: str) -> None:
    """SIGKILL within an answer: the text so far is there, and the stream goes on by its id."""
    with KillableServer(database_url) as server:
        client = server.client
        made = client.post("/api/chat", json={"message": "@ada hello"}).json()
        follow = f"/api/conversations/{made['thread_id']}/follow"
        body = {"message": "@ada go on", "thread_id": made["thread_id"]}
        headers = {"Accept": "text/event-stream"}
        last = "0"
        with client.stream("POST", "/api/chat", json=body, headers=headers) as answer:
            pieces = events_in(answer.iter_lines())
            next(pieces)
            with client.stream("GET", follow) as response:
                for _, own_id, data in events_in(response.iter_lines()):
                    last = own_id or last
                    if data["version"] > made["version"]:
                        break
            server.kill()
        server.start()
        body["message"] = "@ada and now?"
        answered = client.post("/api/chat", json=body).json()
        assert answered["status"] == "ok"
        with client.stream("GET", follow, headers={"Last-Event-ID": last}) as response:
            versions = []
            for _, _, data in events_in(response.iter_lines()):
                versions.append(data["version"])
                if data["version"] >= answered["version"] - 2:
                    break
        assert versions == sorted(versions)
        assert versions[0] > int(last)
    with EventStore.open(database_url) as store:
        items = Views(store).timeline(made["thread_id"])
        texts = [item.text for item in items if item.kind == "user"]
        assert texts == ["@ada hello", "@ada go on", "@ada and now?"]
        assert store.verify(made["thread_id"]).ok


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.skipif(CURL is None, reason="no curl is installed")
def test_curl_follows(service: Running, store: EventStore) -> None:
    """``curl -N`` prints each event as it is committed: a program without any library follows."""
    thread = service.chat("@tom one")["thread_id"]
    place = f"{service.address}/api/conversations/{thread}/follow"
    command = [str(CURL), "-sN", "-H", f"Authorization: Bearer {TOKEN}", place]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as curl:
        try:
            assert curl.stdout is not None
            found = events_in(line.rstrip("\n") for line in curl.stdout)
            next(found)
            with Conversation.open(store, thread) as conversation:
                conversation.rename("seen by curl")
            titles = (
                change["item"]["title"]
                for _, _, data in found
                for change in data["changes"]
                if change["kind"] == "added" and change["item"]["kind"] == "conversation"
            )
            assert "seen by curl" in titles
        finally:
            curl.kill()
