"""What a provider's own tools did is told to others in a short line, without secrets and ids."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.provider_actions import mention
from tests.unit.streams import handmade_anthropic as claude
from tests.unit.streams import handmade_openai as gpt

_ITEMS = [item for items in (gpt.HOSTED | gpt.ASKING).values() for item in items]
_BLOCKS = [block for blocks in (claude.BLOCKS | claude.WAITING).values() for block in blocks]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (gpt.HOSTED["web-search"][0], "[web search: rome weather]"),
        (gpt.HOSTED["web-search"][1], "[page opened: https://weather.example/rome]"),
        (gpt.HOSTED["code-interpreter"][0], "[code run: print(6 * 7)]\n[output: 42]"),
        (gpt.HOSTED["mcp"][0], "[tools of wiki: ask]"),
        (gpt.HOSTED["mcp"][1], "[MCP wiki ask]\n[output: Rome is a city.]"),
        (gpt.HOSTED["shell-hosted"][0], "[shell: ls -la]"),
        (gpt.HOSTED["shell-hosted"][1], "[output: a.txt]"),
        (gpt.HOSTED["tool-search-hosted"][1], "[tools found: send_mail]"),
        (gpt.HOSTED["image"][0], "[image made: A cat in Rome]"),
        (gpt.HOSTED["compaction"][0], "[earlier messages were compacted]"),
        (claude.BLOCKS["web-search"][1], "[web_search: rome]"),
        (claude.BLOCKS["web-search"][2], "[result: Weather in Rome]"),
        (claude.MCP_RESULT, "[result: Rome is a city.]"),
        ({"type": "dream", "content": "x"}, "[dream]"),
        (None, ""),
        ([], "[other content]"),
    ],
)
def test_words(raw: Any, words: str) -> None:
    """What was done, on what, and what came of it."""
    assert mention(raw) == words


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


@given(st.sampled_from(_ITEMS + _BLOCKS), st.data())
def test_words_are_short_whatever_a_field_holds(item: dict[str, Any], data: st.DataObject) -> None:
    """A field of another form than the one that is documented breaks nothing."""
    field = data.draw(st.sampled_from(sorted(item.keys() - {"type", "text"}) or ["content"]))
    held = data.draw(_json | st.text(min_size=5_000, max_size=5_001))
    text = mention({**item, field: held})
    assert len(text) < 5_000 or item["type"] == "text"
