"""A message at less detail keeps its structure and what matters."""

from __future__ import annotations

import json
from typing import Any

import pytest

from projections.context.compression import shortening
from projections.context.compression.facts import json_of
from projections.context.compression.shortening import (
    LONGEST,
    Preview,
    ends,
    is_short,
    shorten,
    shorten_json,
    shorten_text,
)
from projections.context.compression.table_text import dumped, table_text
from tests.unit.compression.example import AIRLINE_FLIGHTS, RETAIL_ORDER, said


def shortened(content: str) -> str:
    """Return the shorter content of a message; fail if there is none."""
    message = shorten({"role": "tool", "tool_call_id": "c", "content": content})
    assert message is not None
    return str(message["content"])


def test_like_objects_become_a_table() -> None:
    """Keys are said once; a flat object within a row becomes columns of its own."""
    assert json.loads(shorten_json(AIRLINE_FLIGHTS)) == {
        "columns": ["flight_number", "origin", "seats.economy", "delayed"],
        "rows": [["HAT001", "PHL", 10, False], ["HAT083", "LGA", 0, True]],
    }


def test_a_retail_order_loses_no_value() -> None:
    """Each string and number of the order stands in its shorter form, which is JSON."""
    shorter = shortened(json.dumps(RETAIL_ORDER, indent=2))

    json.loads(shorter)
    for value in ("#W2378156", "yusuf_rossi_9620", "19122", "9523456873", "272.33", "delivered"):
        assert value in shorter


def test_objects_by_key_become_a_table_with_the_keys() -> None:
    """The keys are a column."""
    value = {key: {"size": key.lower(), "price": 5} for key in ("A1", "B2", "C3")}

    assert json.loads(shorten_json(value))["rows"][1] == ["B2", "b2", 5]


def test_a_key_that_reads_like_a_joined_one_is_not_overwritten() -> None:
    """Joining a.b over a key "a.b" lost one of the two values."""
    rows = [{"a": {"b": 1}, "a.b": 2}, {"a": {"b": 3}, "a.b": 4}]

    assert json.loads(shorten_json(rows)) == {
        "columns": ["a", "a.b"],
        "rows": [[{"b": 1}, 2], [{"b": 3}, 4]],
    }


@pytest.mark.parametrize(
    "value",
    [
        {"rows": [f"row number {number}" for number in range(2_000)]},
        {"rows": [f"row number {number}" for number in range(2_000)] + ["…"]},
        {"rows": [f"row number {number}" for number in range(2_000)] + ["… and so on"]},
        [{"id": number, "text": "x" * 50} for number in range(500)],
        {str(number): [1, 2, 3, number] for number in range(3_000)},
        {"a": "x" * 20_000, "b": {"c": ["y" * 20_000]}},
        [["z" * 3_000] * 20],
    ],
)
def test_a_long_value_stays_json_within_the_limit(value: Any) -> None:
    """Rows that begin with an ellipsis of their own raised IndexError."""
    shorter = shorten_json(value)

    json.loads(shorter)
    assert len(shorter) <= LONGEST


def test_the_cut_of_a_long_list_says_how_much_is_missing() -> None:
    """The number is right after several cuts."""
    rows = json.loads(shorten_json([f"row number {number}" for number in range(2_000)]))

    assert rows[-2:] == [f"… {2_000 - len(rows) + 1} more", "row number 1999"]


def test_not_a_number_stays_what_it_was() -> None:
    """What Python's JSON reads it writes as it found it."""
    assert shortened('{"a":  NaN}') == '{"a":NaN}'


def test_an_escaped_half_of_a_surrogate_pair_stays_escaped() -> None:
    """The shorter form can be encoded."""
    assert shortened('{"a":    "\\ud800"}') == '{"a":"\\ud800"}'


def test_very_deep_nesting_is_prose() -> None:
    """How deep the caller's own stack is must not decide what comes out."""
    deep = "[" * 5_000 + "]" * 5_000

    assert len(shortened(deep)) <= LONGEST


@pytest.mark.parametrize("closing", ["]", "}]", '\\"]', "\\\\]"])
def test_brackets_in_strings_do_not_hide_deep_nesting(closing: str) -> None:
    """They counted as closing ones, and parsing what is nested so deep raised RecursionError."""
    deep = f'["{closing}",' * 5_000 + "1" + "]" * 5_000

    assert json_of(deep) is None
    assert table_text(deep) is None
    assert len(shortened(deep)) <= LONGEST


def test_brackets_in_strings_do_not_nest() -> None:
    """A list of texts that open brackets is JSON."""
    held = ["a[", '"b{', "c\\["] * 100

    assert json_of(json.dumps(held)) == held


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello there. It is nice. You must pay 5 EUR.", "Hello there.\nYou must pay 5 EUR."),
        ("你好。今天天气好。必须退款。", "你好。\n必须退款。"),
        ("One sentence only", "One sentence only"),
        ("First.\n\nThen a word.\nSee src/app/main.py!", "First.\nSee src/app/main.py!"),
        ("", ""),
    ],
)
def test_prose_keeps_the_first_sentence_and_those_that_matter(text: str, expected: str) -> None:
    """Facts, numbers and words of obligation matter, in English and in Chinese."""
    assert shorten_text(text) == expected


def test_a_message_without_a_shorter_form_has_none() -> None:
    """Nothing is returned that is not shorter, and contents of parts are left alone."""
    assert shorten(said("Short.")) is None
    assert shorten({"role": "user", "content": [{"type": "text", "text": "x. " * 99}]}) is None


def test_role_and_calls_stay() -> None:
    """Only the content differs."""
    message = {**said("First. Second."), "tool_calls": [{"id": "c"}]}

    assert shorten(message) == {**message, "content": "First."}


@pytest.mark.parametrize("text", ["a+", "a--", ". ", "[", "1", "\n", "退。", "x 1. "])
def test_a_megabyte_of_anything_is_shortened(text: str) -> None:
    """Several of these took quadratic time, which would be hours here."""
    assert len(shorten_text(text * (1_000_000 // len(text)))) <= LONGEST


def test_a_megabyte_of_small_lists_is_shortened() -> None:
    """Cutting them one after the other would take minutes."""
    value = {str(number): [1, 2, 3, number] for number in range(50_000)}

    assert len(shorten_json(value)) <= LONGEST


FILLING = "It is what it is and so on. " * 40


def prose(role: str, text: str, preview: Preview | None = None) -> str:
    """Return a text of a role at less detail."""
    shorter = shorten({"role": role, "content": text}, preview)
    assert shorter is not None
    return str(shorter["content"])


def test_of_a_long_user_message_the_first_paragraph_and_the_bullets_stay() -> None:
    """Document 000 asks for these; once only sentences with facts stayed."""
    bullets = "- with a handle\n- for children"
    text = f"Make it blue. Then make it round.\n\n{FILLING}\n{bullets}\n{FILLING}"
    shorter = prose("user", text)
    for kept in ("Make it blue.", "Then make it round.", "- with a handle", "- for children"):
        assert kept in shorter
    assert "what it is" not in shorter


@pytest.mark.parametrize("end", ["In short the shoe fits.", "The shoe fits."])
def test_of_a_long_answer_the_first_and_the_conclusion_stay(end: str) -> None:
    """Where no sentence says that it concludes, the last one does."""
    shorter = prose("assistant", f"Here is why. {FILLING}{end}")
    assert ["Here is why.", end] == shorter.split("\n")


def test_of_a_long_output_tool_status_and_both_ends_stay() -> None:
    """The last lines of a build say what became of it; once only the first one was sure to stay."""
    begun = [
        "make all --keep-going --directory=there",
        "compiling whatever is older than its source",
    ]
    ended = ["linking everything that has been compiled", "no rule to make what the product needs"]
    lines = [*begun, *["so it goes on and on"] * 90, *ended]
    shorter = prose("tool", "\n".join(lines), Preview("build", "failed", "@state/x"))
    assert shorter.split("\n") == [
        "TOOL_RESULT_PREVIEW",
        "- tool: build",
        "- status: failed",
        *begun,
        *ended,
        "Full output: @state/x",
    ]


def test_of_long_json_tool_status_and_both_ends_stay() -> None:
    """It stays JSON."""
    rows = [f"row number {number}" for number in range(2_000)]
    shorter = json.loads(prose("tool", json.dumps(rows), Preview("list", "success", "@state/x")))
    assert ("list", "success", "@state/x") == tuple(shorter.values())[:3]
    assert [rows[0], rows[-1]] == [shorter["shortened"][0], shorter["shortened"][-1]]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("short", True),
        ("x" * 160, True),
        ("x" * 161, False),
        ('"' * 161, False),
        ("\u2026 3 more", False),
    ],
)
def test_a_table_that_is_short_is_the_shorter_form(said: str, expected: bool) -> None:
    """Nobody parses a result again to learn that its shorter form is the table that it has."""
    content = json.dumps([{"id": number, "name": said} for number in range(3)])
    table = table_text(content)
    assert table is not None

    message = {"role": "tool", "content": content}
    shorter = shorten(message, Preview(tool="look", status="success", path=None))

    assert is_short(table, content) == expected
    assert (shorter == {**message, "content": table}) == expected


def test_lists_within_lists_are_written_once_in_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result of 22 KB that nests 90 deep took five seconds: each list in it was written anew."""
    value: Any = [[1, 2, 3, 4, "five"]] * 900
    for _ in range(90):
        value = [1, 2, 3, "four", value]
    text = json.dumps(value)
    written: list[int] = []

    def counted(value: Any) -> str:
        found = dumped(value)
        written.append(len(found))
        return found

    monkeypatch.setattr(shortening, "_dumps", counted)
    shorter = shorten_json(value)
    assert len(shorter) <= LONGEST
    assert sum(written) < 100 * len(text)


LISTED = "\n".join(
    f"-rw-r--r-- 1 root root {n * 37} Nov {n % 28 + 1} file{n}.txt" for n in range(300)
)


def test_of_an_output_in_which_every_line_matters_both_ends_stay() -> None:
    """Logs, tables and listings had no shorter form: every line of them has digits."""
    shorter = prose("tool", LISTED, Preview("ls", "success", "@state/x"))

    assert len(shorter) < len(LISTED) // 2
    assert shorter.split("\n")[3] == LISTED.split("\n")[0]
    assert shorter.split("\n")[-2:] == [LISTED.split("\n")[-1], "Full output: @state/x"]


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_of_a_list_no_item_loses_its_text(role: str) -> None:
    """Once only "1." was left of "1. Install the package"."""
    shorter = prose(role, "The plan.\n1. Install the package\n2. Look at it\n" + FILLING)

    assert shorter.split("\n")[:3] == ["The plan.", "1. Install the package", "2. Look at it"]


def test_a_user_s_lasting_statement_stays() -> None:
    """It has no digit and no word of obligation."""
    assert "Call me Kim." in prose("user", f"Hello there. Call me Kim. {FILLING}")


@pytest.mark.parametrize(
    "output", [LISTED, "word " * 9_000, "字" * 9_000, json.dumps([LISTED] * 9)]
)
def test_the_ends_of_an_output_take_a_few_hundred_tokens(output: str) -> None:
    """With the tool, its status and the path, whatever the output is."""
    message = {"role": "tool", "tool_call_id": "c", "content": output}
    made = ends(message, 900, Preview("look", "failed", "@state/x"))

    assert made is not None
    lines = str(made["content"]).split("\n")
    assert lines[:3] == ["TOOL_RESULT_PREVIEW", "- tool: look", "- status: failed"]
    assert lines[-1] == "Full output: @state/x"
    assert lines[3].startswith(output[:20])
    assert lines[-2].endswith(output[-20:])
    assert len(str(made["content"]).encode()) < 1_100


def test_the_ends_of_a_preview_do_not_name_the_tool_twice() -> None:
    """A long output arrives as a preview that names it."""
    shown = Preview("look", "success", "@state/x")
    head = "TOOL_RESULT_PREVIEW of 1 bytes\n- tool: look\n- status: success"
    preview = f"{head}\n{LISTED}\nFull output: @state/x"
    made = ends({"role": "tool", "content": preview}, 900, shown)

    assert made is not None
    assert [str(made["content"]).count(each) for each in ("- tool", "Full output")] == [1, 1]


def test_the_ends_of_arguments_stay_a_json_object() -> None:
    """A call that writes a file vanished with the file's text."""
    arguments = json.dumps(
        {"path": "a.py", "text": LISTED, "more": [{"id": n} for n in range(999)]}
    )
    call = {"id": "c", "type": "function", "function": {"name": "write", "arguments": arguments}}
    made = ends({"role": "assistant", "content": None, "tool_calls": [call]}, 900)

    assert made is not None
    sent = json.loads(made["tool_calls"][0]["function"]["arguments"])
    assert sent["path"] == "a.py"
    assert sent["text"].startswith(LISTED[:20])
    assert len(json.dumps(sent)) < 1_200
