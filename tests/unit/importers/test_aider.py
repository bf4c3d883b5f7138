"""aider's Markdown: who wrote what, several chats in a file, and a file that grows."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_eventstore import EventStore, Views
from agent_eventstore.transcripts import Transcript, detect, load, read_transcripts, sessions_in
from eventstore import events as e
from tests.unit.importers.conftest import Write
from tests.unit.importers.reading import found, only, payloads

HISTORY = """
# aider chat started at 2026-02-25 10:00:00

> /usr/bin/aider --model gpt-4o
> Aider v0.86.1
> Main model: gpt-4o with diff edit format
> Git repo: .git with 3 files

#### How dry is the pot?
#### Look into pots.py.

I read the file:

```python
#### not a question
> 11
```

# Answer

Very dry: 11 percent.

> Tokens: 2.3k sent, 45 received.

#### Water it.

Done.

> Applied edit to pots.py
"""
_EMPTY = "\n# aider chat started at 2026-02-26 09:00:00\n\n> Aider v0.86.1\n"
_NEXT = "\n# aider chat started at 2026-02-27 09:00:00\n\n#### Hello\n\nHi!\n"


def _spoken(transcript: Transcript) -> list[tuple[str, str]]:
    texts = list[tuple[str, str]]()
    for data in payloads(transcript):
        assert isinstance(data, e.UserMessage | e.AssistantMessage)
        texts.append((data.type, "".join(part.text for part in data.parts if part.kind == "text")))
    return texts


def test_who_wrote_what(write: Write) -> None:
    """Headings and quotations within an answer are the model's."""
    chat = only(write(HISTORY, ".aider.chat.history.md"))
    question, answer, wish, done = _spoken(chat)
    assert ("user_message", "How dry is the pot?\nLook into pots.py.") == question
    assert answer[1].startswith("I read the file:")
    assert answer[1].endswith("# Answer\n\nVery dry: 11 percent.")
    assert [] == [each for each in ("#### not a question", "> 11") if each not in answer[1]]
    assert [("user_message", "Water it."), ("assistant_message", "Done.")] == [wish, done]
    assert {"line of aider itself": 6} == chat.left_out.passed_over
    answers = [each for each in payloads(chat) if isinstance(each, e.AssistantMessage)]
    assert ["gpt-4o"] * 2 == [each.invocation and each.invocation.model for each in answers]
    assert 2026 == chat.events[0].meta.occurred_at.year  # type: ignore[union-attr]


def test_a_file_of_several_chats(write: Write) -> None:
    """A start without a word is no conversation; its lines are counted all the same."""
    chats, failures = found(write(HISTORY + _EMPTY + _NEXT))
    assert ([], 2) == (failures, len(chats))
    assert [6, 1] == [sum(chat.left_out.passed_over.values()) for chat in chats]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_file_that_grows_line_by_line(tmp_path: Path, newline: str) -> None:
    """What was imported stays; what aider appends is added, and nothing is refused."""
    path, lines = tmp_path / ".aider.chat.history.md", (HISTORY + _NEXT).splitlines()
    whole = next(n for n, line in enumerate(lines) if line.startswith("> Tokens"))
    with EventStore.open(f"sqlite:///{tmp_path / 'a.db'}") as store:
        for end in (5, whole, len(lines) - 4, len(lines), len(lines)):
            path.write_bytes(newline.join(lines[:end]).encode())
            report = load(store, read_transcripts(path), strict=True)
        assert (0, 2) == (report.events_added, len(Views(store).conversations()))


def test_it_is_found_in_a_folder(write: Write, tmp_path: Path) -> None:
    """Under aider's own name only: other Markdown is not looked at."""
    path = write(HISTORY, "project/.aider.chat.history.md")
    write("# Notes", "project/README.md")
    assert "aider" == detect(path)
    assert ([path], []) == sessions_in(tmp_path)


@pytest.mark.parametrize("content", ["", "# Notes\n", "#### Hello\n", "{}", "[1]"])
def test_other_files_are_refused(write: Write, content: str) -> None:
    """With a reason, also if the format is named."""
    transcripts, [reason] = found(write(content), "aider")
    assert [] == transcripts
    assert "start of a chat of aider" in reason
