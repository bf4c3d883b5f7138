"""Secrets do not reach the log: by a product's redactor, and those that the recorder knows."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agent_eventstore import AsyncConversation, Conversation
from agent_eventstore.transcripts import ImportReport, load, read_transcripts
from eventstore import AsyncEventStore, EventStore, NewEvent, new_id, redact_secrets
from eventstore import events as e
from eventstore.errors import InvalidEvent, RedactionFailed
from eventstore.events.codec import encode
from eventstore.security.redaction import UNREDACTED
from eventstore.sql.schema import metadata_for

KEY = "sk-proj-" + "aB3" * 14
ECHO = f"Error code: 401 - Incorrect API key provided: {KEY}."


class AuthenticationError(Exception):
    """As an SDK raises it."""

    status_code = 401


def no_names(path: Any, value: Any) -> Any:
    """Take out a name; fail at a text of which it says so."""
    if isinstance(value, str):
        if "fail" in value:
            raise RuntimeError(f"cannot judge {value}")
        return value.replace("Ada", "[redacted: name]")
    return value


def _said(store: EventStore) -> str:
    """Return all that is stored of events and blobs."""
    with store.reading() as connection:
        tables = metadata_for(connection.dialect.name).tables
        rows = [connection.execute(tables[each].select()).all() for each in ("events", "blobs")]
    return repr(rows)


def _texts(store: EventStore, conversation: Any) -> list[str]:
    return [encode(event.data) for event in store.read(conversation) if event.data is not None]


class TestRedactor:
    """`EventStore.open(redact=...)`: every text and JSON value of a payload."""

    def test_what_is_returned_is_stored(self, database_url: str) -> None:
        """In all places, blobs included; the append returns what was stored; the chain holds."""
        cid = new_id()
        with EventStore.open(database_url, migrate=False, redact=no_names) as store:
            done = store.append(
                cid,
                [
                    e.UserMessage.text("I am Ada"),
                    e.AssistantMessage.of("Hello Ada", raw={"to": ["Ada"]}),
                    e.ToolResult(call_id="2.0", content="Ada " * 50_000),
                    e.UnknownEvent("theirs", 1, {"who": "Ada"}),
                ],
            )
            assert "Ada" not in _said(store)
            assert list(store.read(cid)) == list(done.events)
            whole = done.events[2].data
            assert isinstance(whole, e.ToolResult)
            assert whole.blob is not None
            assert b"Ada" not in store.blob(cid, whole.blob.digest)
            assert store.verify().ok

    def test_a_redactor_that_fails_refuses_the_append(self, database_url: str) -> None:
        """Nothing is stored, of the others neither; the error does not repeat the text."""
        cid = new_id()
        with EventStore.open(database_url, migrate=False, redact=no_names) as store:
            with pytest.raises(InvalidEvent) as raised:
                store.append(cid, [e.UserMessage.text("I am Ada"), e.UserMessage.text("fail 4711")])
            assert isinstance(raised.value, RedactionFailed)
            assert 1 == raised.value.index
            assert "4711" not in str(raised.value)
            assert [] == list(store.read(cid))

    @pytest.mark.parametrize(
        "instead", [None, 7, ["x"], pytest.param(object(), id="object")], ids=str
    )
    def test_a_text_stays_a_text(self, sqlite_url: str, instead: Any) -> None:
        """What cannot stand in the field is refused as an event that cannot be stored."""
        redact = lambda path, value: instead  # noqa: E731
        with EventStore.open(sqlite_url, redact=redact) as store, pytest.raises(InvalidEvent):
            store.append(new_id(), [e.UserMessage.text("x")])

    def test_the_asynchronous_store(self, database_url: str) -> None:
        """It takes and does the same."""

        async def run() -> list[Any]:
            cid = new_id()
            opened = AsyncEventStore.open(database_url, migrate=False, redact=no_names)
            async with await opened as store:
                await store.append(cid, [e.UserMessage.text("I am Ada")])
                with pytest.raises(RedactionFailed):
                    await store.append(cid, [e.UserMessage.text("fail")])
                return [event.data async for event in store.read(cid)]

        assert [e.UserMessage.text("I am [redacted: name]")] == asyncio.run(run())

    def test_a_repeated_append_is_the_first(self, sqlite_url: str) -> None:
        """The same event ids give the first result."""
        cid, event = new_id(), NewEvent(e.UserMessage.text("Ada"), new_id())
        with EventStore.open(sqlite_url, redact=no_names) as store:
            assert store.append(cid, [event]) == store.append(cid, [event])


class TestRecorder:
    """What the recorder knows by itself, and what becomes of facts."""

    def test_the_providers_echo_of_a_key(self, database_url: str) -> None:
        """Without any redactor, neither the call's error nor the turn's has the key."""
        with EventStore.open(database_url, migrate=False) as store:
            conversation = Conversation.start(store)
            with pytest.raises(AuthenticationError), conversation.turn("hello") as turn:
                with turn.llm_call(model="m", parameters={"extra_body": {"api_key": "abc"}}):
                    raise AuthenticationError(ECHO)
            conversation.close()
            said = " ".join(_texts(store, conversation.id))
            assert KEY not in said
            assert "Incorrect API key provided: [redacted: api_key]" in said
            assert '"api_key":"[redacted: api_key]"' in said

    def test_what_people_say_is_left_alone(self, sqlite_url: str) -> None:
        """Texts are redacted where the product asks for it."""
        for redact, stays in ((None, True), (redact_secrets, False)):
            with EventStore.open(sqlite_url, redact=redact) as store:
                conversation = Conversation.start(store)
                with conversation.turn(f"my key is {KEY}"):
                    pass
                conversation.close()
                assert stays is any(KEY in text for text in _texts(store, conversation.id))

    def test_a_fact_is_not_lost_to_a_redactor_that_fails(
        self, database_url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A placeholder stands in place of the text, and the log says so."""
        with EventStore.open(database_url, migrate=False, redact=no_names) as store:
            conversation = Conversation.start(store)
            with conversation.turn("Ada asks") as turn, turn.llm_call(model="m") as call:
                call.response(
                    {"choices": [{"message": {"role": "assistant", "content": "fail 4711"}}]}
                )
            conversation.close()
            said = " ".join(_texts(store, conversation.id))
            assert UNREDACTED in said
            assert "4711" not in said
            assert "4711" not in caplog.text
            assert "the redactor failed" in caplog.text
            ends = [each.data for each in store.read(conversation.id) if each.type == "turn_end"]
            assert ["ok"] == [getattr(each, "status", None) for each in ends]

    def test_a_fact_is_not_lost_asynchronously(self, database_url: str) -> None:
        """The asynchronous recorder does the same, also with a redactor that always fails."""
        begun = False

        def broken(path: Any, value: Any) -> Any:
            if begun:
                raise RuntimeError
            return value

        async def run() -> str:
            nonlocal begun
            opened = AsyncEventStore.open(database_url, migrate=False, redact=broken)
            async with await opened as store:
                conversation = await AsyncConversation.start(store)
                async with conversation.turn("x") as turn, turn.llm_call(model="m") as call:
                    begun = True
                    await call.response(
                        {"choices": [{"message": {"role": "assistant", "content": "secret"}}]}
                    )
                read = [event async for event in store.read(conversation.id)]
                return " ".join(encode(event.data) for event in read if event.data is not None)

        said = asyncio.run(run())
        assert UNREDACTED in said
        assert "secret" not in said

    def test_what_is_intended_is_refused(self, sqlite_url: str) -> None:
        """A turn whose input cannot be judged does not begin: the model would see a placeholder."""
        with EventStore.open(sqlite_url, redact=no_names) as store:
            conversation = Conversation.start(store)
            with pytest.raises(RedactionFailed):
                conversation.turn("fail").__enter__()
            conversation.close()
            assert "fail" not in " ".join(_texts(store, conversation.id))


class TestImport:
    """A store with a redactor takes imports like all others."""

    def test_an_import_is_redacted_and_found_again(self, database_url: str, tmp_path: Path) -> None:
        """No digest of the whole record is left, and the same file adds nothing."""
        path = tmp_path / "a.json"
        messages = [{"role": "user", "content": f"password: hunter2 {KEY}"}]
        for content in (messages, {"id": "c", "messages": messages}):
            path.write_text(json.dumps(content), "utf-8")
            with EventStore.open(database_url, migrate=False, redact=redact_secrets) as store:
                assert 1 == load(store, read_transcripts(path)).conversations
                assert ImportReport(unchanged=1) == load(store, read_transcripts(path))
                assert "hunter2" not in _said(store)
                assert "[redacted: password]" in _said(store)


def _pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


SAID = f"I found it.\nThe password: hunter2-{KEY} is yours,\nand nobody else's."
ARGUMENTS = json.dumps({"api_key": KEY, "query": "weather"})


def _chunks_of_openai(size: int) -> list[dict[str, Any]]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}

    told = [chunk({"content": piece}) for piece in _pieces(SAID, size)]
    function = {"name": "search", "arguments": ""}
    call = {"index": 0, "id": "call_1", "type": "function", "function": function}
    told.append(chunk({"tool_calls": [call]}))
    told += [
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
        for piece in _pieces(ARGUMENTS, size)
    ]
    return [*told, chunk({}, "tool_calls")]


class TestStreams:
    """A secret that comes in pieces is in none of the events that hold the pieces."""

    @pytest.mark.parametrize("size", [1, 3, 700])
    @pytest.mark.parametrize("cut_off", [False, True])
    def test_no_piece_of_a_secret_is_stored(
        self, sqlite_url: str, monkeypatch: pytest.MonkeyPatch, size: int, cut_off: bool
    ) -> None:
        """However it is cut, and where the stream breaks off; what was said is whole."""
        monkeypatch.setattr("agent_eventstore.batching.BATCH_CHARS", 8)
        chunks = _chunks_of_openai(size)
        with EventStore.open(sqlite_url, migrate=False, redact=redact_secrets) as store:
            with Conversation.start(store) as conversation, conversation.turn("hello") as turn:
                with turn.llm_call(model="gpt-4o") as call:
                    for chunk in chunks[:-1] if cut_off else chunks:
                        call.feed(chunk)
            stored = [each for text in _texts(store, conversation.id) for each in [text]]
            for start in range(0, len(KEY) - 12, 4):
                assert not any(KEY[start : start + 12] in each for each in stored)
            assert not any("hunter2" in each for each in stored)
            data = [event.data for event in store.read(conversation.id)]
            pieces = [each for each in data if isinstance(each, e.AssistantChunk)]
            said = "".join(each.text for each in pieces)
            assert redact_secrets(("assistant_chunk", "text"), SAID) == said
            assert store.verify().ok

    def test_no_piece_is_stored_asynchronously(self, sqlite_url: str) -> None:
        """The twin cuts at the same places."""

        async def go() -> None:
            store = await AsyncEventStore.open(sqlite_url, migrate=False, redact=redact_secrets)
            conversation = await AsyncConversation.start(store)
            async with conversation.turn("hello") as turn:
                async with turn.llm_call(model="gpt-4o") as call:
                    for chunk in _chunks_of_openai(2):
                        await call.feed(chunk)
            await conversation.close()
            await store.close()

        asyncio.run(go())
        with EventStore.open(sqlite_url, migrate=False) as store:
            [listed] = store.list()
            assert not any(KEY[8:24] in text for text in _texts(store, listed.conversation_id))
