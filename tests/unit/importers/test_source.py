"""Records of foreign files: lines are named, and a broken record hides no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts.record_source import LARGEST_DOCUMENT, Parsed, Record, Source
from tests.unit.importers.conftest import Write


def _told(parsed: Parsed) -> tuple[int | None, object]:
    if isinstance(parsed, Record):
        return parsed.line, parsed.value
    return parsed.line, "failed"


def test_the_elements_of_an_array_know_their_lines(write: Write) -> None:
    """Each element of a JSON array is named by the line where it begins."""
    source = Source(write('[\n1,\n\n{"a":\n2}, 3\n]'))
    assert [(2, 1), (4, {"a": 2}), (5, 3)] == [_told(item) for item in source.document()]


@pytest.mark.parametrize("bad", ["NaN", '{"a": -Infinity}', "[1e999]", "9" * 5_000])
def test_an_element_that_json_does_not_know_hides_no_other(write: Write, bad: str) -> None:
    """NaN, infinities and numbers out of range cost their own element only."""
    source = Source(write(f"[1,\n{bad},\n3]"))
    assert [(1, 1), (2, "failed"), (3, 3)] == [_told(item) for item in source.document()]


@pytest.mark.parametrize("text", ["[1,\n{oops},\n3]", "[1,\n2", "[1\n2]", "[1,\n]", "[1]\nmore"])
def test_a_broken_array_ends_with_the_line_of_the_break(write: Write, text: str) -> None:
    """Elements before the break are read, and the break is reported once, with its line."""
    told = [_told(item) for item in Source(write(text)).document()]
    assert (1, 1) == told[0]
    assert [(2, "failed")] == [item for item in told if item[1] == "failed"]


def test_a_broken_line_hides_no_other(write: Write) -> None:
    """A line of JSON Lines that is not JSON is reported with its number; blank lines count."""
    source = Source(write('{"a":1}\n\n{"a":\n{"a":2} x\n{"a":3}\n'))
    expected = [(1, {"a": 1}), (3, "failed"), (4, "failed"), (5, {"a": 3})]
    assert expected == [_told(item) for item in source.lines()]


def test_a_line_that_is_not_utf8_hides_no_other(tmp_path: Path) -> None:
    """Bytes that are not text cost their own line only."""
    path = tmp_path / "file"
    path.write_bytes(b"\xef\xbb\xbf1\n\xff\xfe\n3\n")
    assert [(1, 1), (2, "failed"), (3, 3)] == [_told(item) for item in Source(path).lines()]


def test_a_document_that_is_not_utf8_is_reported_with_its_line(tmp_path: Path) -> None:
    """The line is that of the first bad byte."""
    path = tmp_path / "file"
    path.write_bytes(b"[1,\n\xff]")
    assert [(2, "failed")] == [_told(item) for item in Source(path).document()]


def test_a_separator_inside_a_text_does_not_end_a_line(write: Write) -> None:
    """U+2028 and U+0085 are characters of a text, not line breaks."""
    source = Source(write('"a\u2028b\u0085c"\n2\n'))
    assert [(1, "a\u2028b\u0085c"), (2, 2)] == [_told(item) for item in source.lines()]


def test_lone_surrogates_are_kept(write: Write) -> None:
    """Escaped lone surrogates are read as they stand."""
    assert [(1, "\ud800")] == [_told(item) for item in Source(write('"\\ud800"')).lines()]


def test_a_record_nested_too_deeply_hides_no_other(write: Write) -> None:
    """What the store could not keep is refused when it is read."""
    source = Source(write(f"[1,\n{'[' * 300}{']' * 300},\n3]"))
    assert [(1, 1), (2, "failed"), (3, 3)] == [_told(item) for item in source.document()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a":1}\n{"a":2}\n', True),
        ('{"a":1}\n', False),
        ('{"a":\n1}\n', False),
        ('[\n{"a":1},\n{"a":2}\n]', False),
        ('[{"a":1},\n{"a":2}]', False),
        ('{"a": oops}\n{"a":2}\n', True),
        ("[1]\n[2]\n", True),
        ("", False),
    ],
)
def test_json_lines_are_told_from_a_document(write: Write, text: str, expected: bool) -> None:
    """JSON Lines are whole values on lines of their own, even when the first line is broken."""
    assert expected is Source(write(text)).is_lines()


def test_progress_ends_at_one(write: Write) -> None:
    """The share that has been read grows to 1.0, for lines and for arrays."""
    for text, is_lines in (("1\n2\n", True), ("[1, 2]", False)):
        shares: list[float] = []
        source = Source(write(text), shares.append)
        list(source.lines() if is_lines else source.document())
        assert (1.0, sorted(shares)) == (shares[-1], shares)


def test_a_document_that_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    """It was read whole, whatever its size, and took several times as much memory."""
    path = tmp_path / "a.json"
    with path.open("wb") as file:
        file.truncate(LARGEST_DOCUMENT + 1)
    (report,) = Source(path).document()
    assert isinstance(report, ImportFailed)
    assert "more than 1,073,741,824 bytes: split it" in report.reason
