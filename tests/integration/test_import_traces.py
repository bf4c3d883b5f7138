"""What an import leaves behind once it is erased, and what others learn of it: nothing."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_eventstore.transcripts import (
    ImportReport,
    Transcript,
    export_openai,
    load,
    read_transcripts,
)
from eventstore import EventStore
from eventstore.sql.schema import metadata_for

pytestmark = pytest.mark.exhaustive_when("postgresql")

SECRET = {"role": "user", "content": "my PIN is 4711"}
ANSWER = {"role": "assistant", "content": "noted"}
FORMS: dict[str, Any] = {
    "without an id": [SECRET, ANSWER],
    "with an id": {"id": "c", "messages": [SECRET, ANSWER]},
    "of a project": [{**SECRET, "id": "m1", "createdAt": "2024-05-10T12:00:00Z"}, ANSWER],
}


@pytest.fixture
def store(alone: EventStore) -> EventStore:
    """Give an empty store."""
    return alone


def _load(store: EventStore, path: Path, content: Any, **owner: str) -> ImportReport:
    path.write_text(json.dumps(content), "utf-8")
    found = read_transcripts(path)
    owned = (_owned(each, owner) if isinstance(each, Transcript) else each for each in found)
    return load(store, owned)


def _owned(transcript: Transcript, owner: dict[str, str]) -> Transcript:
    return replace(transcript, **owner)  # type: ignore[arg-type]


def _left(store: EventStore) -> set[Any]:
    """Return every value of every table of the log."""
    with store.reading() as connection:
        tables = metadata_for(connection.dialect.name).tables.values()
        return {
            bytes(value) if isinstance(value, memoryview) else value
            for table in tables
            for row in connection.execute(table.select())
            for value in row
            if not isinstance(value, list | dict)
        }


def _digests(content: Any) -> set[str]:
    """Return the digests that somebody would try: of the whole, and of each message."""
    messages = content if isinstance(content, list) else content["messages"]
    texts = [
        json.dumps(each, sort_keys=keys) for each in (content, *messages) for keys in (False, True)
    ]
    return {hashlib.sha256(text.encode()).hexdigest() for text in (*texts, SECRET["content"])}


@pytest.mark.parametrize("versions", [None, [2]], ids=["conversation", "message"])
@pytest.mark.parametrize("form", FORMS)
def test_an_erased_text_cannot_be_guessed(
    store: EventStore, tmp_path: Path, form: str, versions: list[int] | None
) -> None:
    """Of all possible texts none has more in common with what is left than the others have."""
    [cid] = _load(store, tmp_path / "a", FORMS[form]).ids
    store.erase(cid, reason="asked for", versions=versions)
    left = _left(store)
    marks: list[set[Any]] = []
    for pin in ("4711", "4712"):
        guess = json.loads(json.dumps(FORMS[form]).replace("4711", pin))
        url = f"sqlite:///{tmp_path / pin}.db"
        with EventStore.open(url, synchronous="OFF") as other:
            _load(other, tmp_path / "b", guess)
            marks.append(left & (_left(other) | _digests(guess)))
    assert marks[0] == marks[1]


def test_the_same_file_is_imported_by_two_tenants(store: EventStore, tmp_path: Path) -> None:
    """Each gets a conversation of its own, and neither is told that the other has one."""
    for form, content in FORMS.items():
        reports = [
            _load(store, tmp_path / "a", content, tenant_id=tenant, user_id=user)
            for tenant, user in (("acme", "ada"), ("acme", "bob"), ("zeta", "ada"))
        ]
        assert [[]] * 3 == [report.failures for report in reports], form
        assert 3 == len({report.ids[0] for report in reports}), form
        again = _load(store, tmp_path / "a", content, tenant_id="acme", user_id="bob")
        assert (1, reports[1].ids) == (again.unchanged, again.ids), form


def test_owners_cannot_be_composed_to_be_another(store: EventStore, tmp_path: Path) -> None:
    """A name with a separator in it is no other tenant with another user."""
    content = FORMS["with an id"]
    names = (("a", "b\x1fc"), ("a\x1fb", "c"), ('a","b', "c"), ("a", 'b","c'))
    ids = {
        _load(store, tmp_path / "a", content, tenant_id=tenant, user_id=user).ids[0]
        for tenant, user in names
    }
    assert len(names) == len(ids)


def test_an_erased_source_without_an_id_becomes_a_new_conversation(
    store: EventStore, tmp_path: Path
) -> None:
    """Nothing of it is left that it could be known by."""
    [first] = _load(store, tmp_path / "a", FORMS["without an id"]).ids
    store.erase(first, reason="asked for")
    report = _load(store, tmp_path / "a", FORMS["without an id"])
    assert ImportReport(conversations=1, events_added=3) == report
    assert first != report.ids[0]
    assert [] == export_openai(store, first)


def test_an_erased_message_does_not_come_back(store: EventStore, tmp_path: Path) -> None:
    """What else the conversation says is compared, and what was erased stays away."""
    content = FORMS["with an id"]
    [cid] = _load(store, tmp_path / "a", content).ids
    store.erase(cid, reason="asked for", versions=[2])
    assert ImportReport(unchanged=1) == _load(store, tmp_path / "a", content)
    assert [ANSWER] == export_openai(store, cid)
    changed = {"id": "c", "messages": [SECRET, {**ANSWER, "content": "other"}]}
    assert 1 == len(_load(store, tmp_path / "a", changed).failures)


def test_a_large_result_is_the_same_when_it_is_imported_again(
    store: EventStore, tmp_path: Path
) -> None:
    """A text that went to a blob is compared as a whole."""
    call = {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    large = {"role": "tool", "tool_call_id": "x", "content": "x" * 100_000}
    content = {"id": "c", "messages": [SECRET, asked, large]}
    _load(store, tmp_path / "a", content)
    assert ImportReport(unchanged=1) == _load(store, tmp_path / "a", content)
    changed = {"id": "c", "messages": [SECRET, asked, {**large, "content": "x" * 99_999 + "y"}]}
    assert 1 == len(_load(store, tmp_path / "a", changed).failures)
