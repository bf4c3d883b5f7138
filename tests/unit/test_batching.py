"""Which deltas share an event: the first alone, then 512 characters or 100 ms."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent_eventstore.batching import Batcher
from eventstore.events import AssistantChunk, ToolCallDelta
from projections.providers import Delta


def begun() -> Batcher:
    """Return a batcher whose first delta came, and was written, at time 0."""
    batcher = Batcher("call")
    assert batcher.add(Delta(text="first"), 0.0) is not None
    return batcher


def test_first_delta_is_written_at_once() -> None:
    """So that a crash right after it shows that the model had begun."""
    chunk = Batcher("call").add(Delta(text="He"), 5.0)

    assert AssistantChunk(llm_call_id="call", index=0, text="He") == chunk


def test_empty_delta_is_not_the_first() -> None:
    """A role, a ping or an empty text begins nothing."""
    batcher = Batcher("call")

    assert batcher.add(Delta(), 0.0) is None
    assert batcher.due_at is None
    assert batcher.take(9.0) is None


def test_what_follows_is_held() -> None:
    """Until 100 ms after the first of what is held."""
    batcher = begun()

    assert batcher.add(Delta(text="a"), 1.0) is None
    assert 1.1 == batcher.due_at
    assert batcher.add(Delta(text="b"), 1.05) is None
    assert 1.1 == batcher.due_at


def test_batch_is_written_after_100_ms() -> None:
    """With the delta that comes then."""
    batcher = begun()
    batcher.add(Delta(text="a"), 1.0)
    chunk = batcher.add(Delta(text="b"), 1.1)

    assert ("ab", 1) == (chunk and chunk.text, chunk and chunk.index)
    assert batcher.due_at is None


def test_empty_delta_lets_a_due_batch_go() -> None:
    """A ping that comes after 100 ms writes what is held."""
    batcher = begun()
    batcher.add(Delta(text="a"), 1.0)

    assert batcher.add(Delta(), 1.05) is None
    chunk = batcher.add(Delta(), 1.2)
    assert "a" == (chunk and chunk.text)


def test_batch_is_written_at_512_characters() -> None:
    """Text, reasoning, refusal and arguments count together."""
    batcher = begun()
    calls = (ToolCallDelta(index=0, arguments="d" * 128),)

    assert batcher.add(Delta(text="a" * 128, reasoning="b" * 128, refusal="c" * 127), 1.0) is None
    assert batcher.add(Delta(tool_calls=calls), 1.0) is None
    chunk = batcher.add(Delta(text="e"), 1.0)
    assert chunk is not None
    assert ("a" * 128 + "e", calls) == (chunk.text, chunk.tool_calls)


def test_pieces_of_a_call_are_joined() -> None:
    """Neighbouring pieces of the same call become one; names and ids stay where they came."""
    batcher = begun()
    pieces = (
        ToolCallDelta(index=0, name="a", provider_id="call_1"),
        ToolCallDelta(index=0, arguments='{"x"'),
        ToolCallDelta(index=0, arguments=": 1}"),
        ToolCallDelta(index=1, name="b"),
        ToolCallDelta(index=0, arguments=" "),
    )
    for piece in pieces:
        batcher.add(Delta(tool_calls=(piece,)), 1.0)
    chunk = batcher.take(1.0)

    joined = ToolCallDelta(index=0, name="a", provider_id="call_1", arguments='{"x": 1}')
    assert (joined, *pieces[3:]) == (chunk and chunk.tool_calls)


def delta_of(kind: str, text: str) -> Delta:
    """Return a delta that says a text in one of three ways."""
    said: dict[str, Any] = {kind: text}
    return Delta(**said)


@given(
    st.lists(
        st.tuples(st.sampled_from(["text", "reasoning", "refusal"]), st.text(max_size=300)),
        max_size=40,
    ),
    st.floats(0, 0.2),
)
def test_nothing_is_lost_or_said_twice(said: list[tuple[str, str]], pace: float) -> None:
    """The batches, put together, are what was said; never is more than a batch held."""
    batcher, written = Batcher("call"), list[AssistantChunk]()
    for number, (kind, text) in enumerate(said):
        chunk = batcher.add(delta_of(kind, text), number * pace)
        written += [chunk] if chunk else []
        so_far = sum(len(each) for _, each in said[: number + 1])
        kept = sum(len(each.text + each.reasoning + each.refusal) for each in written)
        assert so_far - kept < 512
    last = batcher.take(0.0)
    written += [last] if last else []

    for kind in ("text", "reasoning", "refusal"):
        whole = "".join(text for name, text in said if name == kind)
        assert whole == "".join(getattr(chunk, kind) for chunk in written)
    assert list(range(len(written))) == [chunk.index for chunk in written]


class TestLines:
    """Where a redactor is asked, a batch ends where a line does."""

    def test_a_line_is_written_when_it_has_ended(self) -> None:
        """What follows it waits, also beyond the time and the size of a batch."""
        batcher = Batcher("call", in_lines=True)
        assert batcher.add(Delta(text="one"), 0.0) is None
        chunk = batcher.add(Delta(text=" line\ntwo"), 0.01)
        assert chunk is not None
        assert "one line\n" == chunk.text
        assert batcher.add(Delta(text="x" * 600), 0.5) is None
        assert batcher.due_at is None
        last = batcher.take(0.6, last=True)
        assert last is not None
        assert ("two" + "x" * 600, 1) == (last.text, last.index)
        assert batcher.take(0.7, last=True) is None

    def test_a_long_line_is_cut_between_words(self) -> None:
        """It is not held without bound, and one without a blank is cut as it stands."""
        batcher = Batcher("call", in_lines=True)
        chunk = batcher.add(Delta(text="a " * 3_000 + "word"), 0.0)
        assert chunk is not None
        assert "a " * 3_000 == chunk.text
        chunk = batcher.add(Delta(text="b" * 5_000), 0.2)
        assert chunk is not None
        assert "word" + "b" * 5_000 == chunk.text

    def test_a_call_is_written_as_a_whole(self) -> None:
        """Its arguments in one piece, whatever came between."""
        batcher = Batcher("call", in_lines=True)
        for index, arguments in ((0, "{"), (1, "["), (0, "}"), (1, "]")):
            name = "search" if arguments in "{[" else None
            delta = ToolCallDelta(index=index, name=name, arguments=arguments)
            assert batcher.add(Delta(tool_calls=(delta,)), 0.0) is None
        last = batcher.take(0.6, last=True)
        assert last is not None
        assert [(0, "{}"), (1, "[]")] == [(each.index, each.arguments) for each in last.tool_calls]
