"""``POST /api/chat`` as document 002 has it, against a running service."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from eventstore import EventStore
from projections import Views
from tests.server.serving import Answering, Running, events_in, running


def test_document_002(service: Running, models: dict[str, Answering], store: EventStore) -> None:
    """A session is created, answered by those mentioned, and refused to another thread."""
    first = service.chat("hello", thread_slug="plans", project_id="p1", mode="free_chat")
    assert first["user_message"] == {"role": "user", "content": "hello"}
    assert [(each["participant"], each["content"]) for each in first["responses"]] == [
        ("tom", "tom says 1"),
        ("ann", "ann says 1"),
    ]
    again = {"thread_id": first["thread_id"], "thread_slug": "plans"}
    second = service.chat("@tom and now?", **again)
    assert [each["content"] for each in second["responses"]] == ["tom says 2"]
    history = " ".join(each["content"] for each in models["tom"].requests[-1].messages)
    assert "hello" in history
    assert "ann says 1" in history

    refused = service.client.post(
        "/api/chat", json={"message": "x", **again, "thread_slug": "other"}
    )
    assert refused.status_code == 409
    assert refused.json()["error"] == "WrongThread"
    refused = service.client.post("/api/chat", json={"message": "x", **again, "project_id": "p2"})
    assert refused.status_code == 409
    listed = service.client.get("/api/conversations", params={"thread_slug": "plans"}).json()
    assert [each["conversation_id"] for each in listed["conversations"]] == [first["thread_id"]]
    assert len(Views(store).timeline(first["thread_id"])) > 0
    assert store.verify(first["thread_id"]).ok


def test_workflow(service: Running) -> None:
    """Roles answer one after the other; the next message names the same roles and is answered."""
    roles = {"coder": "tom", "reviewer": "ann", "tester": "tom"}
    first = service.chat("sort it", mode="workflow", role_config=roles)
    assert [each["participant"] for each in first["responses"]] == ["tom", "ann", "tom"]
    assert first["mode_state"]["status"] == "done"
    more = {"thread_id": first["thread_id"], "mode": "workflow", "role_config": roles}
    second = service.chat("faster", **more)
    assert len(second["responses"]) == 3


def test_concurrent_messages_of_a_session_are_serialised(
    service: Running, models: dict[str, Answering]
) -> None:
    """Ten posts at once are ten turns, one after the other, and none is lost."""
    thread = service.chat("@tom first")["thread_id"]
    models["tom"].most, models["tom"].pause_s = 0, 0.01
    with ThreadPoolExecutor(10) as threads:
        found = list(threads.map(lambda n: service.chat(f"@tom {n}", thread_id=thread), range(10)))
    assert models["tom"].most == 1
    assert sorted(each["turn"] for each in found) == list(range(2, 12))
    items = service.client.get(f"/api/conversations/{thread}/timeline").json()["items"]
    spoken = [each["kind"] for each in items if each["kind"] in ("user", "assistant")]
    assert spoken == ["user", "assistant"] * 11


def test_an_answer_comes_in_pieces(service: Running) -> None:
    """With Accept: text/event-stream, pieces come first and the response's document last."""
    headers = {"Accept": "text/event-stream"}
    body = {"message": "@tom hi"}
    with service.client.stream("POST", "/api/chat", json=body, headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        found = list(events_in(response.iter_lines()))
    assert [name for name, _, _ in found] == ["text", "text", "result"]
    assert "".join(data["text"] for name, _, data in found if name == "text") == "tom says 1"
    assert found[-1][2]["responses"][0]["content"] == "tom says 1"


def test_an_answer_goes_on_without_its_client(
    service: Running, models: dict[str, Answering]
) -> None:
    """A client that leaves within an answer finds it whole when it comes back."""
    thread = service.chat("@tom hi")["thread_id"]
    models["tom"].gate = threading.Event()
    headers = {"Accept": "text/event-stream"}
    body = {"message": "@tom more", "thread_id": thread}
    with service.client.stream("POST", "/api/chat", json=body, headers=headers) as response:
        next(events_in(response.iter_lines()))
    models["tom"].gate.set()
    third = service.chat("@tom and?", thread_id=thread)
    assert third["turn"] == 3
    items = service.client.get(f"/api/conversations/{thread}/timeline").json()["items"]
    texts = [each["text"] for each in items if each["kind"] == "assistant"]
    assert texts == ["tom says 1", "tom says 2", "tom says 3"]


def test_stop(service: Running, models: dict[str, Answering]) -> None:
    """Stopping fences the session that answers; its text so far stays."""
    thread = service.chat("@tom hi")["thread_id"]
    models["tom"].gate = threading.Event()
    models["tom"].started.clear()
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(
            service.client.post, "/api/chat", json={"message": "@tom go", "thread_id": thread}
        )
        assert models["tom"].started.wait(10)
        stopped = service.client.post(f"/api/conversations/{thread}/stop", json={})
        assert stopped.json()["stopped"] is True
        models["tom"].gate.set()
        assert answer.result().status_code == 409
    assert service.chat("@ann still there?", thread_id=thread)["status"] == "ok"


def test_edit_and_regenerate(service: Running) -> None:
    """Both answer again, and leave the old answer as an alternative."""
    thread = service.chat("@tom one")["thread_id"]
    place = f"/api/conversations/{thread}"
    items = service.client.get(f"{place}/timeline").json()["items"]
    [version] = [each["version"] for each in items if each["kind"] == "user"]
    edited = service.client.post(
        f"{place}/edit", json={"version": version, "message": "@ann one, please"}
    ).json()
    assert [each["participant"] for each in edited["responses"]] == ["ann"]
    again = service.client.post(f"{place}/regenerate", json={}).json()
    assert [each["content"] for each in again["responses"]] == ["ann says 2"]
    points = service.client.get(f"{place}/branches").json()["branches"]
    assert [(each["kind"], len(each["alternatives"])) for each in points] == [
        ("message", 2),
        ("answer", 2),
    ]
    items = service.client.get(f"{place}/timeline").json()["items"]
    shown = [each["text"] for each in items if each["kind"] in ("user", "assistant")]
    assert shown == ["@ann one, please", "ann says 2"]


def test_a_message_posted_twice_is_answered_once(service: Running) -> None:
    """The product's id of a message makes its post repeatable."""
    first = service.chat("@tom hi", message_id="m1")
    second = service.chat("@tom hi", message_id="m1", thread_id=first["thread_id"])
    assert second["responses"][0]["content"] == first["responses"][0]["content"]
    assert second["turn"] == first["turn"]


def test_the_stream_of_the_ai_sdk(service: Running, store: EventStore) -> None:
    """Its transport's request is answered in parts of a message; the chat's id names it."""

    def post(text: str, own_id: str, **more: str) -> list[Any]:
        message = {"id": own_id, "role": "user", "parts": [{"type": "text", "text": text}]}
        body = {"id": "chat-1", "messages": [message], "trigger": "submit-message", **more}
        with service.client.stream("POST", "/api/ui-chat", json=body) as response:
            assert response.headers["x-vercel-ai-ui-message-stream"] == "v1"
            lines = [line for line in response.iter_lines() if line.startswith("data: ")]
        assert lines.pop() == "data: [DONE]"
        return [json.loads(line.removeprefix("data: ")) for line in lines]

    parts = post("@tom hi", "m1")
    assert [each["type"] for each in parts] == [
        "start",
        "text-start",
        "text-delta",
        "text-delta",
        "text-end",
        "finish",
    ]
    assert "".join(each.get("delta", "") for each in parts) == "tom says 1"
    thread = parts[-1]["messageMetadata"]["threadId"]
    again = post("@tom more", "m2")
    assert again[-1]["messageMetadata"] == {"threadId": thread, "turn": 2}
    regenerated = post("@tom more", "m2", trigger="regenerate-message")
    assert "".join(each.get("delta", "") for each in regenerated) == "tom says 3"
    assert store.get(thread).key == "ui::chat-1"


def test_messages_through_two_servers_are_serialised(database_url: str) -> None:
    """A server waits for the session of another one, and both see all messages."""
    model = Answering("tom says", pause_s=0.02)
    with ExitStack() as stack:
        servers = []
        for _ in range(2):
            store = stack.enter_context(EventStore.open(database_url))
            servers.append(stack.enter_context(running(store, models={"tom": model})))
        thread = servers[0].chat("first")["thread_id"]
        model.most = 0
        with ThreadPoolExecutor(6) as threads:
            found = list(
                threads.map(lambda n: servers[n % 2].chat(f"{n}", thread_id=thread), range(6))
            )
        assert model.most == 1
        assert sorted(each["turn"] for each in found) == list(range(2, 8))
