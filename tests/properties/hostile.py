"""Inputs that break readers: JSON of odd values, damaged documents, and things too large.

They hold what JSON allows and databases fear (NUL, lone surrogates, huge numbers), and what only
Python takes for JSON (NaN, infinities).
"""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

__all__ = [
    "HOSTILE",
    "NUMBERS",
    "PIECES",
    "WORDS",
    "changed_bytes",
    "changed_json",
    "jsons",
    "places_in",
]

_DEEP = 100_000
_MILLION = 1_000_000

HOSTILE: tuple[bytes, ...] = (
    b"",
    b"[" * _DEEP,
    b"[" * _DEEP + b"]" * _DEEP,
    b'{"a":' * _DEEP + b"1" + b"}" * _DEEP,
    b"[" * 201 + b"]" * 201,
    b"9" * _MILLION,
    b"[" + b"9" * 5_000 + b"]",
    b"-" * 1_000,
    b"1e999",
    b"[NaN, Infinity, -Infinity, -0.0, 1e-400]",
    b'"' + b"x" * _MILLION + b'"',
    b'"' + b"\\ud800" * 100_000 + b'"',
    b'"' + b"\\u0000" * 100_000 + b'"',
    b'"\xed\xa0\x80"',
    b'"\xff\xfe"',
    b"\xef\xbb\xbf" * 3 + b"{}",
    b"\x00" * 1_000,
    b"\n" * 100_000,
    b"{}\n" * 1_000,
    b"[" + b"{}," * 2_000 + b"{}]",
    b'{"a": 1, "a": 2, "role": "user", "role": 3}',
    b"{" + b", ".join(b'"k%d": 0' % number for number in range(5_000)) + b"}",
    b'{"role": "user", "content": "\\ud800\\u0000", "createdAt": 1e308}',
    b'{"type": "turn_start", "session_id": {"a": []}, "ts": 1e18, "turn": 1e400}',
)
"""Whole files, most of them no transcript."""

PIECES: tuple[bytes, ...] = (
    *(b"\x00", b"\xed\xa0\x80", b"\xff", b"\xef\xbb\xbf", b"\n", b"\r\n", b"\xe2\x80\xa8"),
    *(
        b"NaN",
        b"1e999",
        b"-1",
        b"1" * 30,
        b"null",
        b"true",
        b'"',
        b"\\",
        b"\\ud800",
        b"\\u0000",
    ),
    *(b"[", b"]", b"{", b"}", b",", b":", b"[" * 300, b"]" * 300, b'"content": [', b"{}"),
)
"""What is put between the bytes of a file."""

WORDS: tuple[str, ...] = (
    *("role", "content", "type", "text", "tool_calls", "function", "name", "arguments", "id"),
    *("meta", "session_id", "turn", "step", "ts", "createdAt", "messages", "traj", "tool"),
    *("user", "assistant", "tool", "system", "session_start", "observation", "action", "final"),
    *("conversationId", "version", "call_id", "data", "message", "event", "tokens", "raw"),
    *("1.0", "2024-05-10T12:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"),
    *("\ud800", "\x00", "{", '{"a": 1e999}', "[" * 150 + "]" * 150, '{"a": NaN}', "SUMMARY"),
)
"""Names and texts that importers look for, and some that nobody means."""

NUMBERS: tuple[Any, ...] = (
    *(2**53, 2**63, 2**64, -(2**63) - 1, 10**20, 10**400, -0.0, 1e308, 5e-324),
)
"""Numbers at the ends of what there is."""

_PIECES, _WORDS = st.sampled_from(PIECES), st.sampled_from(WORDS)
_NUMBERS = st.one_of(
    st.integers(),
    st.floats(),
    st.sampled_from(NUMBERS),
)


def jsons(max_leaves: int = 8) -> st.SearchStrategy[Any]:
    """Return a strategy for JSON values, and for some that are none: NaN and infinities."""
    scalars = st.none() | st.booleans() | _NUMBERS | st.text(max_size=5) | _WORDS
    return st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(_WORDS | st.text(max_size=2), inner, max_size=4)
        ),
        max_leaves=max_leaves,
    )


@st.composite
def changed_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """Give bytes of which pieces are lost, repeated, moved or written over."""
    for _ in range(draw(st.integers(1, 4))):
        start, end = sorted(draw(st.tuples(*[st.integers(0, len(content))] * 2)))
        end = min(end, start + draw(st.sampled_from([1, 8, 200, len(content)])))
        lost, rest = content[start:end], content[:start] + content[end:]
        match draw(st.sampled_from(["lose", "repeat", "move", "write", "insert", "cut"])):
            case "lose":
                content = rest
            case "repeat":
                content = content[:end] + lost + content[end:]
            case "move":
                at = draw(st.integers(0, len(rest)))
                content = rest[:at] + lost + rest[at:]
            case "write":
                content = content[:start] + draw(_PIECES) + content[end:]
            case "insert":
                content = content[:start] + draw(_PIECES) + content[start:]
            case _:
                content = content[:end]
    return content


@st.composite
def changed_json(draw: st.DrawFn, value: Any) -> Any:
    """Give a document of which some values, anywhere, are others, lost, repeated or renamed."""
    holder = [copy.deepcopy(value)]
    for _ in range(draw(st.integers(1, 4))):
        places = places_in(holder)
        at, key = places[draw(st.integers(0, len(places) - 1))]
        match draw(st.sampled_from(["change", "change", "change", "lose", "repeat", "rename"])):
            case "lose" if at is not holder:
                del at[key]
            case "repeat" if isinstance(at, list) and at is not holder:
                at.insert(draw(st.integers(0, len(at))), copy.deepcopy(at[key]))
            case "rename" if isinstance(at, dict):
                at[draw(_WORDS)] = at.pop(key)
            case _:
                at[key] = draw(jsons())
    return holder[0]


def places_in(value: Any) -> list[tuple[Any, Any]]:
    """Return every place within a value, as the holder and the key or index."""
    found: list[tuple[Any, Any]] = []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        found.append((value, key))
        if isinstance(inner, dict | list):
            found += places_in(inner)
    return found
