"""Foreign files as records with line numbers: JSON Lines by line, JSON arrays by element.

JSON is read strictly: NaN, infinities, numbers out of range and names that occur twice in an object
are refused. A record that cannot be used is returned as an `ImportFailed` in its place, so it does
not hide any other. JSON Lines are never held as a whole; a JSON document is held as text, and its
elements are decoded one by one. Text is UTF-8, and surrogates encoded as if they were characters
are accepted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from agent_eventstore.errors import ImportFailed
from projections.context.payload_messages import depth_of

__all__ = ["Parsed", "Record", "Source", "depth_of"]


_SPACE = re.compile(r"[ \t\r\n]*")


_LOOK_AHEAD = 20


_MOST_DIGITS = 4_000


_COMPRESSED = {b"\x28\xb5\x2f\xfd": "zstd", b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip"}


LONGEST_LINE = 256 * 1024 * 1024


"""How many bytes of a file are held at once when it is read by lines."""


LARGEST_DOCUMENT = 1024 * 1024 * 1024


"""How many bytes a JSON document may have; its text takes up to four times as much memory."""


DEEPEST = 200


"""How deeply a record may be nested; what is stored is wrapped a few levels deeper."""


@dataclass(frozen=True, slots=True)
class Record:
    """A JSON value of a file, and the line where it begins (from 1)."""

    value: Any
    line: int


Parsed = Record | ImportFailed


class UnusableFile(ValueError):
    """Grammatically valid JSON, ending at ``end``, but with a value that JSON does not allow."""

    def __init__(self, reason: str, end: int) -> None:
        self.end = end
        super().__init__(reason)


class StrictDecoder:
    """Decodes one JSON value at a time, and can skip a value that it refuses."""

    def __init__(self) -> None:
        self._refused: list[str] = []
        self._decoder = json.JSONDecoder(
            parse_constant=self._constant,
            parse_float=self._float,
            parse_int=self._int,
            object_pairs_hook=self._object,
        )

    def decode_at(self, text: str, start: int) -> tuple[Any, int]:
        """Return the value that begins at ``start``, and where it ends.

        Raises:
            Unusable: It contains NaN, an infinity, a number out of range or a name twice; ``end``
                is known.
            ValueError: It is not JSON, or nested too deeply; its end is unknown.
        """
        self._refused.clear()
        try:
            value, end = self._decoder.raw_decode(text, start)
        except RecursionError as error:
            raise ValueError("the JSON is nested too deeply") from error
        brackets = text.count("[", start, end) + text.count("{", start, end)
        if brackets > DEEPEST and depth_of(value) > DEEPEST:
            raise UnusableFile("the JSON is nested too deeply", end)
        if self._refused:
            raise UnusableFile(self._refused[0], end)
        return value, end

    def decode(self, text: str) -> Any:
        """Return the single value of a text.

        Raises:
            ValueError: As for `decode_at`, or the text contains something else.
        """
        value, end = self.decode_at(text, _skip(text, 0))
        if _skip(text, end) < len(text):
            raise ValueError("there is more than one JSON value")
        return value

    def _constant(self, token: str) -> None:
        self._refused.append(f"{token} is not a JSON value")

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            seen: set[str] = set()
            twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
            self._refused.append(f"the name {twice[:40]!r} occurs twice in an object")
        return found

    def _float(self, token: str) -> float | None:
        value = float(token)
        if abs(value) == float("inf"):
            self._constant(token[:40])
            return None
        return value

    def _int(self, token: str) -> int | None:
        if len(token) > _MOST_DIGITS:
            self._constant(f"{token[:40]}...")
            return None
        return int(token)


class Source:
    """A file that records are read from.

    Args:
        path: The file.
        on_read: Called with the share of the file that has been read, from 0.0 to 1.0.
    """

    def __init__(self, path: Path, on_read: Callable[[float], None] | None = None) -> None:
        self.path = path
        self.file = str(path)
        self._on_read = on_read or (lambda share: None)
        self._decoder = StrictDecoder()

    def failed(self, line: int | None, reason: str) -> ImportFailed:
        """Return the report of a record that cannot be used."""
        return ImportFailed(self.file, line, reason)

    def require_text(self) -> None:
        """Raise if the file is compressed, as old sessions of coding agents are.

        Raises:
            ImportFailed: The file is compressed; the report names the compression.
        """
        with self.path.open("rb") as file:
            head = file.read(4)
        for mark, name in _COMPRESSED.items():
            if head.startswith(mark):
                raise self.failed(None, f"the file is compressed with {name}: decompress it first")

    def lines(self) -> Iterator[Parsed]:
        """Iterate over the values of a JSON Lines file; blank lines are skipped."""
        size, done = max(self.path.stat().st_size, 1), 0
        with self.path.open("rb") as file:
            for number, raw in enumerate(iter(partial(file.readline, LONGEST_LINE), b""), start=1):
                done += len(raw)
                if len(raw) == LONGEST_LINE and not raw.endswith(b"\n"):
                    done += _pass_over(file)
                    yield self.failed(number, f"the line has more than {LONGEST_LINE:,} bytes")
                elif raw.strip():
                    yield self._line(raw, number)
                self._on_read(done / size)

    def document(self) -> Iterator[Parsed]:
        """Iterate over the elements of a JSON array, or yield the one value of another document.

        A broken array ends at the broken element. A document of more than `LARGEST_DOCUMENT` bytes
        is refused.
        """
        if self.path.stat().st_size > LARGEST_DOCUMENT:
            most = f"{LARGEST_DOCUMENT:,} bytes"
            reason = f"the document has more than {most}: split it, or convert it to JSON Lines"
            yield self.failed(None, reason)
            return
        try:
            text = _decode(self.path.read_bytes())
        except UnicodeDecodeError as error:
            # The bytes before the invalid one are good, so their line breaks can be counted.
            line = error.object.count(b"\n", 0, error.start) + 1
            yield self.failed(line, f"the text is not UTF-8: {error.reason}")
            return
        start = _skip(text, 0)
        if text[start : start + 1] == "[":
            yield from self._elements(text, start + 1)
        else:
            yield from self._value(text, start)
        self._on_read(1.0)

    def records(self) -> Iterator[Parsed]:
        """Iterate over the values of JSON Lines, or the elements of a document."""
        return self.lines() if self.is_lines() else self.document()

    def lists(self, *holders: str) -> Iterator[tuple[dict[str, Any], list[Record]] | ImportFailed]:
        """Iterate over the lists of a file, each with the other fields of the object that holds it.

        Elements that neither are nor hold a list form the file's own list, which comes last. It is
        omitted if part of the file cannot be read.

        Args:
            holders: The names under which objects hold lists; ``a.b`` is the ``b`` of an ``a``.
        """
        own: list[Record] | None = []
        for item in self.records():
            if isinstance(item, ImportFailed):
                own = None
                yield item
                continue
            value = item.value
            several = (_taken_out(value, holder.split(".")) for holder in holders)
            rest, listed = next((each for each in several if each is not None), ({}, value))
            if not isinstance(listed, list):
                if own is not None:
                    own.append(item)
            elif listed:
                yield rest, [Record(each, item.line) for each in listed]
            else:
                yield self.failed(item.line, "there are no messages")
        if own:
            yield {}, own

    def is_array(self) -> bool:
        """Whether the file begins with an opening bracket."""
        return next(self._peek(), "").startswith("[")

    def is_lines(self) -> bool:
        """Whether this is JSON Lines: a file of complete JSON values, each on its own line."""
        lines = islice(self._peek(), _LOOK_AHEAD)
        first = next(lines, "")
        if self._is_whole(first):
            return next(lines, None) is not None
        # An unreadable first line hides a JSON Lines file only if it looks like a document's.
        return not first.endswith(("[", "{", ",")) and any(map(self._is_whole, lines))

    def first_values(self) -> Iterator[Any]:
        """Iterate over the first few readable values, whatever shape the file has."""
        for item in islice(self.records(), _LOOK_AHEAD):
            if isinstance(item, Record):
                yield item.value

    def value_of(self, raw: bytes) -> Parsed:
        """Return the value of a JSON document in the file, or why it cannot be used."""
        try:
            text = _decode(raw)
        except UnicodeDecodeError as error:
            return self.failed(1, _reason(error))
        return next(self._value(text, _skip(text, 0)))

    def beside(self, name: str, levels: int = 1) -> Iterator[Any]:
        """Yield the value of the JSON file ``name`` next to this one, or a report, or nothing.

        Args:
            name: The file's name.
            levels: How many directories to search, from this file's own upwards.
        """
        for directory in list(self.path.absolute().parents)[:levels]:
            if (directory / name).is_file():
                for item in Source(directory / name).document():
                    yield item.value if isinstance(item, Record) else item
                return

    def _peek(self) -> Iterator[str]:
        with self.path.open("rb") as file:
            for raw in iter(partial(file.readline, LONGEST_LINE), b""):
                if raw.strip():
                    yield _decode(raw, errors="replace").strip()

    def _is_whole(self, line: str) -> bool:
        if not line.startswith(("{", "[")):
            return False
        try:
            return self._decoder.decode_at(line, 0)[1] == len(line)
        except UnusableFile as error:
            return error.end == len(line)
        except ValueError:
            return False

    def _line(self, raw: bytes, number: int) -> Parsed:
        try:
            text = _decode(raw)
            value, end = self._decoder.decode_at(text, _skip(text, 0))
            if _skip(text, end) < len(text):
                return self.failed(number, "there is more than one JSON value on the line")
        except ValueError as error:
            if not raw.endswith(b"\n") and raw.lstrip().startswith((b"{", b"[")):
                return self.failed(number, f"{_reason(error)}; the file ends within this line")
            return self.failed(number, _reason(error))
        return Record(value, number)

    def _value(self, text: str, start: int) -> Iterator[Parsed]:
        line = text.count("\n", 0, start) + 1
        try:
            value, end = self._decoder.decode_at(text, start)
        except ValueError as error:
            yield self.failed(getattr(error, "lineno", line), _reason(error))
            return
        if (rest := _skip(text, end)) < len(text):
            yield self.failed(text.count("\n", 0, rest) + 1, "there is more than one JSON value")
            return
        yield Record(value, line)

    def _elements(self, text: str, place: int) -> Iterator[Parsed]:
        line, counted = 1, 0
        place = _skip(text, place)
        closed = text[place : place + 1] == "]"
        while not closed:
            line, counted = line + text.count("\n", counted, place), place
            try:
                value, place = self._decoder.decode_at(text, place)
                yield Record(value, line)
            except UnusableFile as error:
                place = error.end
                yield self.failed(line, str(error))
            except ValueError as error:
                yield self.failed(getattr(error, "lineno", line), _reason(error))
                return
            self._on_read(place / len(text))
            place = _skip(text, place)
            mark = text[place : place + 1]
            closed = mark == "]"
            if mark not in {"]", ","}:
                line += text.count("\n", counted, place)
                yield self.failed(line, "the array is broken here: a comma or ] is missing")
                return
            place = place if closed else _skip(text, place + 1)
        if (rest := _skip(text, place + 1)) < len(text):
            yield self.failed(text.count("\n", 0, rest) + 1, "there is more after the array")


def _taken_out(value: Any, path: Sequence[str]) -> tuple[dict[str, Any], list[Any]] | None:
    """Return an object without the list at a path in it, and the list; None if there is none."""
    first, *further = path
    if not isinstance(value, dict) or first not in value:
        return None
    rest = {key: each for key, each in value.items() if key != first}
    if not further:
        return (rest, value[first]) if isinstance(value[first], list) else None
    if (inner := _taken_out(value[first], further)) is None:
        return None
    return rest | ({first: inner[0]} if inner[0] else {}), inner[1]


def _pass_over(file: BinaryIO) -> int:
    """Read to the end of a line; return how many bytes that was."""
    passed, raw = 0, b""
    while not raw.endswith(b"\n") and (raw := file.readline(LONGEST_LINE)):
        passed += len(raw)
    return passed


def _decode(raw: bytes, errors: str = "surrogatepass") -> str:
    return raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors)


def _skip(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return place if found is None else found.end()


def _reason(error: ValueError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"the text is not UTF-8: {error.reason}"
    if isinstance(error, json.JSONDecodeError):
        return f"the text is not JSON: {error.msg}"
    return str(error)
