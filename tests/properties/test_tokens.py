"""Cutting a long text never changes its count, wherever the cuts fall."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.tokens import Count, count_message, ranks, text, tokenizer_for

# Characters at which the bundled encodings behave differently: both cases, contractions, marks,
# digits, the slash that o200k_base keeps with punctuation, every kind of line end and blank.
TRICKY = (
    "aZéßtsdmlvreĲǅʰªᾳ漢かア가กع'’`\"0٣½_-./!?:;，。、（）\t\n\r\x0b\x85\xa0\u3000\u0301\u200d😀🇩\0"
)

words = st.sampled_from(
    [
        "it's",
        "DON'T",
        "we'll",
        "HTTPServer",
        "naïve",
        "2024-05-13",
        "漢字",
        "/usr/bin",
        "!\n/",
        "  ",
    ]
)
texts = st.lists(
    st.one_of(st.text(alphabet=TRICKY + " ", max_size=12), words, st.text(max_size=6)), max_size=20
).map("".join)


@pytest.mark.parametrize("name", ranks.BUNDLED)
@given(whole=texts, window=st.integers(1, 9))
def test_tokens_of_certain_pieces_are_those_of_the_whole(
    name: str, whole: str, window: int
) -> None:
    """Cut at certain places only, a text gives the same tokens as in one piece."""
    encode = ranks.encoding(name).encode_ordinary
    cut = [piece for piece, _ in text.pieces(whole, window, limit=len(whole) + window + 1)]
    assert encode(whole) == [token for piece in cut for token in encode(piece)]


@given(whole=texts, window=st.integers(1, 9), more=st.integers(0, 9))
def test_pieces_make_up_the_text(whole: str, window: int, more: int) -> None:
    """No character is lost or doubled, and no piece is longer than allowed."""
    cut = [piece for piece, _ in text.pieces(whole, window, window + more)]
    assert whole == "".join(cut)
    assert all(len(piece) <= window + more for piece in cut)


@given(
    whole=st.text(st.characters(), max_size=200),
    surrogates=st.text(st.characters(categories=["Cs"])),
)
def test_any_text_is_counted(whole: str, surrogates: str) -> None:
    """Every Python string has a count, lone surrogates included."""
    counted = tokenizer_for("gpt-4o").count(surrogates + whole)
    assert counted.tokens <= 3 * len((surrogates + whole).encode("utf-8", "surrogatepass"))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["type", "text", "function", "name", "arguments", "image_url"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=8,
    )
)
def test_any_recorded_message_is_counted(junk: object) -> None:
    """Whatever JSON stands in the fields of a message, counting does not fail."""
    message = {"role": junk, "content": junk, "name": junk, "tool_calls": junk, "refusal": junk}
    assert isinstance(count_message(message, tokenizer_for("gpt-4")), Count)
