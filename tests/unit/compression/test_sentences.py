"""Where sentences end: not behind abbreviations and numbers of lists, in several languages."""

from __future__ import annotations

import pytest

from projections.context.compression.sentences import sentences_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ask Dr. Miller. Then call Mr. Smith.", ["Ask Dr. Miller.", "Then call Mr. Smith."]),
        ("Es ist am 3. Mai z. B. frei. Gut.", ["Es ist am 3. Mai z. B. frei.", "Gut."]),
        ("你好。今天好！走吗？", ["你好。", "今天好！", "走吗？"]),
        ("Version 2.0 is out. See a.b/c.md!", ["Version 2.0 is out.", "See a.b/c.md!"]),
        ("one line\nand another", ["one line", "and another"]),
        ("", []),
    ],
)
def test_a_sentence_ends_where_both_languages_end_it(text: str, expected: list[str]) -> None:
    """Once "Ask Dr." was a sentence."""
    assert sentences_of(text) == expected


@pytest.mark.parametrize(
    "item",
    [
        "1. Make it blue. Then red.",
        "2) Stop. Go.",
        "- Do it. Now.",
        "* [ ] Do it. Now.",
        "(3) Do it. Now.",
        "a. Do it. Now.",
        "一、安装。启动。",
        "③ 安装。启动。",
    ],
)
def test_a_list_item_is_one_sentence(item: str) -> None:
    """With its marker, and with the indented lines that belong to it."""
    assert sentences_of(f"Begin:\n{item}\n   More of it.\nEnd.") == [
        "Begin:",
        f"{item}\n   More of it.",
        "End.",
    ]


def test_a_list_within_a_line_keeps_its_numbers() -> None:
    """A number that begins an item does not end what is before it."""
    found = sentences_of("Do this: 1. Install it 2. Start it. Then stop.")
    assert not any(each.rstrip(". ").split()[-1].isdigit() for each in found)


@pytest.mark.parametrize("text", ["a. ", "“", '"', "«a. ", "。", "(", "\ud800. A"])
def test_a_hundred_thousand_characters_of_anything_are_cut(text: str) -> None:
    """Some of these take the segmenter quadratic time, and one cannot be encoded."""
    whole = text * (100_000 // len(text))
    assert len("".join(sentences_of(whole))) <= len(whole)
