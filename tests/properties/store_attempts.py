"""Hypothesis strategies for appends that somebody may try, rightly or wrongly.

A `Wish` names streams, versions and ids by what they are in the example at hand; the state machine
makes an `Attempt` of it. Ids come from a ring of sixteen, so that appends overlap in every way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hypothesis import strategies as st

from eventstore import events as e
from eventstore.events.records import EventData

__all__ = ["CHANGES", "OWNERS", "PLACES", "WISHES", "Change", "Wish"]

Change = Literal["none", "beginning", "end", "reversed", "more", "elsewhere"]

_WORDS = st.sampled_from(["", "one", "a\x00b", "\ud800", "two; DROP TABLE events; --"])
_LONG = st.tuples(st.sampled_from(["abcd", "other ", "漢", "\ud800"]), st.just(2_100)).map(
    lambda pair: pair[0] * pair[1]
)
_PAYLOADS: st.SearchStrategy[EventData] = st.one_of(
    st.builds(e.UserMessage.text, _WORDS.filter(bool)),
    # Equal ones share a blob within a stream, and none between streams.
    st.builds(e.ToolResult, call_id=st.sampled_from(["1.0", "2.0"]), content=_WORDS | _LONG),
    st.builds(lambda word: e.AssistantMessage.of("large", raw={"whole": [word]}), _LONG),
    st.just(e.UnknownEvent("from_elsewhere", 9, {"$blob": {"digest": "none"}})),
)
_NAMED = st.sampled_from([True, True, True, False])
_METAS = st.sampled_from([e.Meta(), e.Meta(turn=1, actor="a'b"), e.Meta(session_id="\ud800")])


@dataclass(frozen=True)
class Wish:
    """What an append shall be.

    Attributes:
        place: Which of the example's streams.
        events: Payloads with their metadata, and whether the writer chooses the event's id.
        first_id: The first of the ids to choose from.
        expected: ``exact`` is the stream's version, ``early`` one less, ``late`` one more.
        owner: Tenant and user.
        epoch: The writer's, if it has one: ``new`` is the stream's own.
        forked: Whether a parent is named.
    """

    place: int
    events: tuple[tuple[EventData, e.Meta, bool], ...]
    first_id: int
    expected: Literal["any", "none", "exact", "early", "late"]
    owner: tuple[str | None, str | None]
    epoch: Literal["new", "old"] | None
    forked: bool


PLACES = st.integers(0, 2)
OWNERS = st.sampled_from(
    [*[(None, None)] * 14, ("acme", None), ("acme", "o'neil"), (None, "\ud800")]
)
CHANGES: st.SearchStrategy[Change] = st.sampled_from(
    ["none", "none", "beginning", "end", "reversed", "more", "elsewhere"]
)
WISHES = st.builds(
    Wish,
    place=PLACES,
    events=st.lists(st.tuples(_PAYLOADS, _METAS, _NAMED), min_size=1, max_size=4).map(tuple),
    first_id=st.integers(0, 15),
    expected=st.sampled_from([*["any"] * 5, *["exact"] * 4, "none", "early", "late"]),
    owner=OWNERS,
    epoch=st.sampled_from([*[None] * 8, "new", "new", "old"]),
    forked=st.booleans(),
)
