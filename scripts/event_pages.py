"""Write docs/events/: a page for each event type, generated from the catalogue.

``python scripts/event_pages.py`` writes the pages; ``tests/docs/test_event_pages.py`` checks that
they are up to date. The meaning of a field comes from ``Attributes:`` of its class, or from
`SHARED` if the name means the same everywhere. The example is the current version's golden file.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from annotated_types import Ge, MaxLen
from pydantic import AwareDatetime
from pydantic.fields import FieldInfo

from eventstore.events import EVENT_TYPES, Meta, Payload
from eventstore.events.base import Value
from eventstore.events.bounds import DEEPEST, Most, MostJson
from eventstore.events.registry import UPCASTERS

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "events"
SHARED = {
    "config": "The product's own settings.",
    "duration_ms": "How long it took, in milliseconds.",
    "error": "The error message.",
    "invocation": "Which model was called.",
    "kind": "Distinguishes this kind of part from the others.",
    "llm_call_id": "The model call, by the id that its writer chose.",
    "node_id": "The node, by its id in the workflow.",
    "provider_id": "The provider's id of the call, which the provider expects back; not unique.",
    "raw": "The original object of the provider or importer, verbatim.",
    "reason": "The reason, as text.",
    "run_id": "The run, by the id that the product or the recorder chose.",
    "sections": "The same content at up to three levels of detail.",
    "status": "How it ended.",
    "task_id": "The task, by the id that the product chose.",
    "ui": "How a user interface shows it; never sent to a model.",
}
"""Meanings of fields whose name means the same everywhere."""

_MADE = "This page is generated from the catalogue by `python scripts/event_pages.py`."
_ATTRIBUTES = re.compile(r"\n\nAttributes:\n(?P<fields>(?:    .*\n?)+)")
_DOCUMENT = re.compile(r",? ?\((?:as in )?documents? \d+[^)]*\)")


def pages() -> dict[str, str]:
    """Return the text of each page, by the name of its file."""
    values = list(dict.fromkeys(each for cls in (*EVENT_TYPES, Meta) for each in _inside(cls)))
    return {
        "index.md": "\n".join(_index()),
        **{f"{cls.type}.md": "\n".join(_page(cls)) for cls in EVENT_TYPES},
        "values.md": "\n".join(_values(values)),
    }


def _index() -> Iterator[str]:
    yield f"# Events\n\nLook up a type that a log may hold, and its payload's fields. {_MADE}\n"
    yield "| type | class in `agent_eventstore.events` | meaning |\n|---|---|---|"
    for cls in EVENT_TYPES:
        first = re.split(r"\.\s", f"{_about(cls)} ")[0].replace("\n", " ")
        yield f"| [`{cls.type}`]({cls.type}.md) | `{cls.__name__}` | {first} |"
    yield (
        "\nPayloads consist of [values](values.md) that types share. Numbers are whole, texts are "
        f"measured in characters, and JSON nests at most {DEEPEST} levels. Without another default "
        "a field that may be null is null, and a list or object is empty. A payload over the "
        "store's threshold is stored as a blob; `read` returns it whole. A type or version from a "
        "newer release is kept, and read as `UnknownEvent`.\n"
    )
    yield f"## Metadata\n\n{_about(Meta)}\n"
    yield from _table(Meta)


def _page(cls: type[Payload]) -> Iterator[str]:
    yield f"# `{cls.type}`\n\n{_about(cls)}\n"
    yield f"`events.{cls.__name__}`, schema version {cls.schema_version}.\n"
    for version in range(1, cls.schema_version):
        told = inspect.getdoc(UPCASTERS[cls.type, version]) or ""
        yield f"Version {version} is upcast to the next one: {told[0].lower()}{told[1:]}\n"
    yield "## Fields\n"
    yield from _table(cls)
    golden = ROOT / "tests" / "golden" / f"{cls.type}.v{cls.schema_version}.json"
    example = json.dumps(json.loads(golden.read_text("utf-8")), indent=2, ensure_ascii=False)
    yield f"## Example\n\n```json\n{example}\n```\n"


def _values(classes: list[type[Value]]) -> Iterator[str]:
    yield "# Values of events\n\nLook up the values in [payloads](index.md).\n"
    for cls in classes:
        yield f"## {cls.__name__}\n\n{_about(cls)}\n"
        yield from _table(cls)


def _table(cls: type[Value]) -> Iterator[str]:
    hints, meanings = get_type_hints(cls, include_extras=True), _meanings(cls)
    yield "| field | type | meaning |\n|---|---|---|"
    for name, field in cls.model_fields.items():
        said = meanings.get(name) or SHARED.get(name)
        if said is None:
            raise SystemExit(f"{cls.__name__}.{name}: its class does not say what it means")
        yield f"| `{name}` | {_type(hints[name])}{_default(field)} | {said} |"
    yield ""


def _default(field: FieldInfo) -> str:
    """Describe a default, except null, which every field has that may be null."""
    if field.is_required():
        return ", required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, Value) or value in ((), {}):
        return ""
    return "" if value is None else f", by default `{json.dumps(value)}`"


def _type(kind: Any) -> str:
    """Describe a type in words, with the bounds of its annotation."""
    marks = [*get_args(kind)[1:]] if get_origin(kind) is Annotated else []
    marks = [each for mark in marks for each in getattr(mark, "metadata", None) or (mark,)]
    of = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    longest = next((mark.max_length for mark in marks if isinstance(mark, MaxLen)), None)
    most = next((mark.limit for mark in marks if isinstance(mark, Most)), longest)
    least = next((mark.ge for mark in marks if isinstance(mark, Ge)), None)
    if small := next((mark.limit for mark in marks if isinstance(mark, MostJson)), None):
        return f"object of at most {small:,} bytes of JSON"
    if of is str:
        return "text" if most is None else f"text up to {most:,}"
    if of is int and most is not None:
        return f"{-most if least is None else least:,} to {most:,}"
    if get_origin(of) is Literal:
        return " or ".join(f'`"{each}"`' for each in get_args(of))
    if isinstance(of, type) and issubclass(of, Value):
        return f"[{of.__name__}](values.md#{of.__name__.lower()})"
    if get_origin(of) is tuple:
        return f"list of: {_type(get_args(of)[0])}"
    if get_origin(of) is dict and get_args(of)[1] is not Any:
        return f"object of: {_type(get_args(of)[1])}"
    if get_args(of) and get_origin(of) is not dict:
        return _either([*get_args(of)])
    plain = {bool: "boolean", int: "number", AwareDatetime: "time with its zone"}
    what = "object" if get_origin(of) is dict else "any JSON"
    return plain.get(of, what)


def _either(kinds: list[Any]) -> str:
    null = " or null" if NoneType in kinds else ""
    kinds = [each for each in kinds if each is not NoneType]
    parts = all("kind" in getattr(each, "model_fields", ()) for each in kinds)
    first = f"[part](values.md#{kinds[0].__name__.lower()})" if parts else ""
    return (first or " or ".join(map(_type, kinds))) + null


def _inside(cls: type[Value]) -> Iterator[type[Value]]:
    """Yield the classes of the values in a class, at any depth."""

    def within(kind: Any) -> Iterator[type[Value]]:
        if isinstance(kind, type) and issubclass(kind, Value):
            yield kind
            yield from _inside(kind)
        for each in get_args(kind):
            yield from within(each)

    for hint in get_type_hints(cls, include_extras=True).values():
        yield from within(hint)


def _about(cls: type[Value]) -> str:
    """Return the docstring of a class without its ``Attributes:``."""
    told = _ATTRIBUTES.sub("", inspect.getdoc(cls) or "")
    return _DOCUMENT.sub("", re.sub(r"``(.+?)``", r"`\1`", told)).strip()


def _meanings(cls: type[Value]) -> dict[str, str]:
    found = _ATTRIBUTES.search(f"{inspect.getdoc(cls)}\n")
    said: dict[str, str] = {}
    for line in (found["fields"] if found else "").splitlines():
        if begun := re.match(r"    (\w+): (.*)", line):
            name, said[begun[1]] = begun[1], begun[2]
        elif line.strip():
            said[name] += f" {line.strip()}"
    return {field: re.sub(r"``(.+?)``", r"`\1`", text) for field, text in said.items()}


def main() -> None:
    """Write the pages."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
