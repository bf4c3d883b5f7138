"""What the model saw: a request's messages exactly as sent, beside the history they came from.

The history is a column of blocks, one for each entry of the ledger: the height shows the tokens in
full, and the filled part those that were sent. With other choices in the query the page shows what
would have been sent at the same moment.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response

from agent_eventstore.server.viewer import rich_text
from agent_eventstore.server.viewer.frame import Frame, PageError, conversation_of, whole_number
from eventstore.errors import EventStoreError
from eventstore.events import LlmRequest, TokenUsage
from eventstore.ids import StreamId
from projections import Views
from projections.context import ContextView, LedgerEntry
from projections.context.compression.strategy import strategies
from projections.context.view import digest_rows
from projections.errors import RequestNotReproducible
from projections.models.prices import cost_usd
from projections.models.timeline_items import TimelineItem
from projections.models.usage import UsageRow
from projections.providers.request_formats import FORMATS
from projections.tokens import count_messages, tokenizer_for

__all__ = ["Seen", "build_other", "next_request", "sent_request", "text_of"]

SECTIONS = (
    "system", "user", "assistant", "tools", "digest", "summaries", "recalled", "notebook",
    "overhead",
)  # fmt: skip
LEVELS = ("full", "shortened", "facts", "dropped", "beyond")
_MOST_BLOCKS = 800
_MOST_MESSAGES = 400
_LONG = 420  # characters of a message before it is folded
_CHARS = 40_000
_WIDE = 158
_WORDS = 4_000
_BEFORE = 600  # events before which the neighbouring requests are looked for


@dataclass(frozen=True, slots=True)
class HistoryBlock:
    """A block of the history's column."""

    number: int
    entry: LedgerEntry
    level: str
    y: float
    height: float
    filled: float
    label: str
    what: str


@dataclass(frozen=True, slots=True)
class _SentMessage:
    """A message of the request as the page shows it."""

    number: int
    role: str
    pieces: Sequence[tuple[str, str]]
    entry: int | None
    version: int | None
    size: int
    state: str
    diff: Markup | str = ""
    words: str = ""
    is_digest: bool = False

    @property
    def is_long(self) -> bool:
        """Whether it is folded."""
        return self.size > _LONG

    @property
    def start(self) -> str:
        """The start of a folded message."""
        return rich_text.first_line(" ".join(text for _, text in self.pieces), _LONG)


@dataclass(frozen=True, slots=True)
class Seen:
    """A request with what is derived from its ledger.

    Attributes:
        view: The request.
        entries: For each message, the number of its entry in the ledger; None if there is none.
        sections: The tokens of each section.
    """

    view: ContextView
    entries: Sequence[int | None]
    sections: Mapping[str, int]

    @classmethod
    def of(cls, view: ContextView) -> Seen:
        """Return the request's links: each group of the plan gives one message for each row."""
        entries: list[int | None] = []
        account, tokenizer = view.account, tokenizer_for(view.encoding)
        shift = 1 if view.ledger and view.ledger[0].version is None else 0
        for place, group in enumerate(account.front, start=shift):
            entries += [place] * len(group.rows)
        paths = not view.policy.get("without_paths", False)
        digests = digest_rows(account.history, tokenizer, paths=paths)
        place = len(account.front) + shift
        for planned in account.history.groups:
            group = planned.group
            if account.block is not None and group.key == account.block.before:
                entries += [place] * len(account.block.group.rows)
                place += 1
            if group.key in digests:
                entries.append(None)
            if planned.level in ("full", "shortened"):
                entries += [place] * len(group.rows)
            place += 1
        linked = len(entries) == len(view.messages)
        if not linked:
            entries = [None] * len(view.messages)
        return cls(view, entries, _sections(view, entries, linked=linked))


def _sections(
    view: ContextView, entries: Sequence[int | None], *, linked: bool
) -> Mapping[str, int]:
    """Return the tokens of each section; what no message takes is overhead."""
    tokenizer = tokenizer_for(view.encoding)
    empty = count_messages((), tokenizer).tokens
    found: Counter[str] = Counter()
    for message, place in zip(view.messages, entries, strict=True):
        role = str(message.get("role") or message.get("type"))
        name = _SECTION_OF_ROLE.get(role, "tools")
        if linked:
            kind = "digest" if place is None else view.ledger[place].kind
            name = _SECTION_OF_KIND.get(kind, name)
        found[name] += count_messages((message,), tokenizer).tokens - empty
    if view.system is not None:
        apart = {"role": "system", "content": view.system}
        found["system"] += count_messages((apart,), tokenizer).tokens - empty
    found["overhead"] = max(0, view.tokens.tokens - sum(found.values()))
    return {name: found[name] for name in SECTIONS}


_SECTION_OF_ROLE = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tools",
    "message": "assistant",
}
_SECTION_OF_KIND = {
    "digest": "digest",
    "summary": "summaries",
    "notebook": "notebook",
    "recalled": "recalled",
}


def build_other(
    views: Views, stream: StreamId, version: int, changes: Mapping[str, Any]
) -> ContextView:
    """Return what would have been sent at the moment of a request with other choices.

    Raises:
        PageError: It cannot be built, for example because the budget is too small.
    """
    try:
        return views.context_of(stream, version, changes=changes)
    except (EventStoreError, ValueError) as error:
        raise PageError(400, "This cannot be built", str(error)) from error


def sent_request(frame: Frame, request: Request) -> Response:
    """Show an earlier request."""
    views, stream = frame.views(request), conversation_of(request)
    info = views.store.get(stream)
    version = request.path_params["version"]
    events = list(views.store.read(stream, after=version - 1, limit=1))
    found = events[0].data if events and events[0].version == version else None
    if not isinstance(found, LlmRequest):
        raise PageError(404, "No such request", f"Event {version} is no request to a model.")
    calls = views.model_calls(conversation_id=stream, before=version + _BEFORE, limit=_BEFORE)
    call, earlier, later = _neighbours(calls, version)
    changes = _changes(request)
    problem, shown, sent = "", None, None
    try:
        sent = Seen.of(views.context_of(stream, version))
    except RequestNotReproducible as error:
        problem = str(error)
    except ValueError as error:
        problem = str(error)
    shown = sent
    if changes:
        shown = Seen.of(build_other(views, stream, version, changes))
    before, compared = None, "what was sent" if changes else ""
    if changes:
        before = sent
    elif earlier is not None:
        try:
            before = Seen.of(views.context_of(stream, earlier))
            compared = f"request {earlier}"
        except (EventStoreError, ValueError):
            before = None
    return frame.page(
        request,
        "request.html",
        **_values(views, stream, info, shown, before, compared),
        version=version,
        recorded=found,
        call=call,
        earlier=earlier,
        later=later,
        changes=changes,
        problem=problem,
        answer=_answer(views, stream, call, version),
        is_next=False,
        reproduced=sent is not None,
        price=_price(shown, call) if changes else None,
    )


def next_request(frame: Frame, request: Request) -> Response:
    """Show what the next request would be."""
    views, stream = frame.views(request), conversation_of(request)
    info = views.store.get(stream)
    changes = _changes(request)
    calls = views.model_calls(conversation_id=stream, limit=1)
    model = next((call.model for call in calls if call.model), None)
    try:
        view = views.context(stream, **{"model": model or "gpt-4o", **changes})
    except (EventStoreError, ValueError) as error:
        try:  # Of a model whose tokenizer is not bundled, another one counts.
            view = views.context(stream, **changes)
        except (EventStoreError, ValueError):
            raise PageError(400, "This cannot be built", str(error)) from error
    last = next((call.version for call in calls), None)
    seen = Seen.of(view)
    return frame.page(
        request,
        "request.html",
        **_values(views, stream, info, seen, None, ""),
        version=info.version,
        recorded=None,
        call=None,
        earlier=last,
        later=None,
        changes=changes,
        problem="",
        answer=[],
        is_next=True,
        reproduced=False,
        price=_price(seen, None),
    )


def _price(seen: Seen | None, call: UsageRow | None) -> float | None:
    """Return the list price of a prompt that nothing of is cached."""
    if seen is None:
        return None
    model = call.model if call is not None else seen.view.policy.get("model")
    provider = call.provider if call is not None else None
    usage = TokenUsage(prompt_tokens=seen.view.tokens.tokens)
    return cost_usd(usage, provider, model, datetime.now(UTC))


def _changes(request: Request) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if (tokens := whole_number(request, "max_tokens", least=1)) is not None:
        found["max_tokens"] = tokens
    strategy, form = (request.query_params.get(name, "") for name in ("strategy", "format"))
    if strategy:
        if strategy not in strategies():
            raise PageError(400, "Unknown strategy", f"There is no strategy {strategy[:80]!r}.")
        found["strategy"] = strategy
    if form:
        if form not in FORMATS:
            raise PageError(400, "Unknown format", f"There is no format {form[:80]!r}.")
        found["format"] = form
    return found


def _neighbours(
    calls: Sequence[UsageRow], version: int
) -> tuple[UsageRow | None, int | None, int | None]:
    call = next((each for each in calls if each.version == version), None)
    known = [each.version for each in calls if each.version is not None and each.model]
    earlier = max((each for each in known if each < version), default=None)
    later = min((each for each in known if each > version), default=None)
    return call, earlier, later


def _answer(
    views: Views, stream: StreamId, call: UsageRow | None, version: int
) -> list[tuple[TimelineItem, Any]]:
    if call is None:
        return []
    end = (call.end_version or version) + 1
    items = views.timeline_page(
        stream, before=end, limit=40, kinds=("assistant", "reasoning", "error", "tool")
    )
    return [
        (each, rich_text.prose(each.text or "", 6_000))
        for each in items
        if each.llm_call_id == call.llm_call_id
    ]


def _values(
    views: Views,
    stream: StreamId,
    info: Any,
    seen: Seen | None,
    before: Seen | None,
    compared: str,
) -> dict[str, Any]:
    [entry] = views.rows("directory", conversation_id=stream) or [{}]
    values: dict[str, Any] = {
        "section": "conversations",
        "title": entry.get("title") or "(untitled)",
        "name": info.key or str(info.conversation_id),
        "view": None if seen is None else seen.view,
        "compared": compared if before is not None else "",
        "strategies": strategies(),
        "formats": tuple(FORMATS),
        "levels": {},
        "blocks": [],
        "tall": 0,
        "messages": [],
        "hidden": 0,
        "counts": {},
        "bar": [],
        "same": None,
        "same_messages": 0,
        "same_width": 0,
        "sections": {},
        "limit": None,
    }
    if seen is None:
        return values
    blocks, tall = _blocks(views, stream, seen.view)
    messages, counts, same = _messages(seen, before)
    tokens = _prefix_tokens(seen, same) if before is not None else None
    values.update(
        blocks=blocks,
        tall=tall,
        levels=Counter(_level(each) for each in seen.view.ledger),
        messages=messages[:_MOST_MESSAGES],
        hidden=max(0, len(messages) - _MOST_MESSAGES),
        counts=counts,
        same=tokens,
        same_messages=same if before is not None else 0,
        bar=_bar(seen),
        sections=seen.sections,
        same_width=_share(seen, tokens),
        limit=_limit(seen.view),
    )
    return values


def _limit(view: ContextView) -> int | None:
    return None if view.usage is None else view.usage.budget


def _share(seen: Seen, tokens: int | None) -> float:
    whole = _limit(seen.view) or seen.view.tokens.tokens
    return round(1_000 * (tokens or 0) / max(1, whole), 1)


def _bar(seen: Seen) -> list[tuple[str, float, float, int]]:
    """Return the budget's segments: section, x, width, tokens; of 1,000."""
    whole = max(1, _limit(seen.view) or seen.view.tokens.tokens)
    place, found = 0.0, []
    for name, tokens in seen.sections.items():
        if tokens:
            width = 1_000 * tokens / whole
            found.append((name, round(place, 2), round(width, 2), tokens))
            place += width
    return found


def _level(entry: LedgerEntry) -> str:
    return "beyond" if entry.version is None and entry.level == "dropped" else entry.level


def _blocks(views: Views, stream: StreamId, view: ContextView) -> tuple[list[HistoryBlock], float]:
    ledger = list(enumerate(view.ledger))[-_MOST_BLOCKS:]
    names = _names(views, stream, view)
    whole = sum(entry.tokens_before or 0 for _, entry in ledger)
    scale = max(0.012, min(0.2, 640 / max(1, whole)))
    found, y = [], 2.0
    last_label = -20.0
    for number, entry in ledger:
        before = entry.tokens_before
        height = 18.0 if before is None else max(2.0, min(64.0, before * scale))
        share = 1.0 if not before else min(1.0, entry.tokens_after / before)
        level = _level(entry)
        kind = "older" if entry.version is None else entry.kind
        what = names.get(entry.version or 0, "")
        label = ""
        if (height >= 9 or entry.version is None) and y - last_label >= 18:
            called = what if entry.kind == "assistant" and what else kind
            label = f"{called[:14]} {entry.version or ''}"
            last_label = y
        filled = 0.0 if level in ("dropped", "beyond") else max(3.0, round(_WIDE * share, 1))
        found.append(
            HistoryBlock(number, entry, level, round(y, 1), round(height, 1), filled, label, what)
        )
        y += height + 1.2
    return found, round(y + 2, 1)


def _names(views: Views, stream: StreamId, view: ContextView) -> dict[int, str]:
    """Return the names of the tools that an answer called, by the answer's version."""
    versions = [entry.version for entry in view.ledger if entry.version]
    if not versions:
        return {}
    found: dict[int, str] = {}
    for call in views.tool_calls(conversation_id=stream, limit=2_000):
        if call.call_version is not None and call.name:
            found[call.call_version] = call.name
    return found


def text_of(message: Mapping[str, Any]) -> str:
    """Return all texts of a message, for a comparison or a search."""
    return "\n".join(text for _, text in _pieces(message))


def _pieces(message: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the pieces of a message in any format: the name of a called tool, and text."""
    found: list[tuple[str, str]] = []
    content = message.get("content", message.get("parts", message.get("output")))
    if isinstance(content, str):
        found.append(("", content))
    elif isinstance(content, list):
        for part in content:
            found += [("", part)] if isinstance(part, str) else _part(part)
    for call in message.get("tool_calls") or message.get("calls") or ():
        function = call.get("function", call)
        given = function.get("arguments_text", function.get("arguments", ""))
        found.append((str(function.get("name", "")), _text(given)))
    for result in message.get("results") or ():
        found += _pieces({"content": result.get("parts")})
    if "role" not in message and not found:
        found += _part(message)
    return found


def _part(part: Mapping[str, Any]) -> list[tuple[str, str]]:
    match part.get("type", part.get("kind")):
        case "tool_use" | "function_call":
            given = part.get("arguments", part.get("input", ""))
            return [(str(part.get("name", "")), _text(given))]
        case "tool_result" | "function_call_output":
            return _pieces({"content": part.get("content", part.get("output"))})
        case "image" | "image_url" | "input_image":
            return [("", "[image]")]
        case kind:
            known = part.get("text") or part.get("refusal") or part.get("thinking")
            return [("", str(known or f"[{kind}]"))]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _messages(seen: Seen, before: Seen | None) -> tuple[list[_SentMessage], dict[str, int], int]:
    """Return the messages, how many are new, changed and gone, and how many begin the same."""
    view = seen.view
    apart = [] if view.system is None else [{"role": "system", "content": view.system}]
    sent = [*apart, *view.messages]
    entries: list[int | None] = [*([None] * len(apart)), *seen.entries]
    marks = [json.dumps(each, sort_keys=True, ensure_ascii=False) for each in sent]
    states, diffs, counts, same = _compared(sent, marks, before)
    found = []
    for number, message in enumerate(sent):
        place = entries[number]
        pieces = [
            (name, rich_text.visible(text[:_CHARS]))
            for name, text in _pieces(message)
            if name or text
        ]
        entry = None if place is None or place >= len(view.ledger) else view.ledger[place]
        role = str(message.get("role") or message.get("type"))
        version = entry.version if entry is not None and entry.version else None
        diff, words = diffs.get(number, ("", ""))
        found.append(
            _SentMessage(
                number + 1,
                role,
                pieces,
                place,
                version,
                sum(len(text) for _, text in pieces),
                states[number],
                diff,
                words,
                bool(pieces) and pieces[0][1].startswith("CONVERSATION_DIGEST"),
            )
        )
    return found, counts, same


def _compared(
    sent: Sequence[Mapping[str, Any]], marks: Sequence[str], before: Seen | None
) -> tuple[list[str], dict[int, tuple[Markup, str]], dict[str, int], int]:
    if before is None:
        return ["same"] * len(marks), {}, {}, 0
    old_view = before.view
    apart = [] if old_view.system is None else [{"role": "system", "content": old_view.system}]
    old = [*apart, *old_view.messages]
    old_marks = [json.dumps(each, sort_keys=True, ensure_ascii=False) for each in old]
    same = 0
    while same < min(len(marks), len(old_marks)) and marks[same] == old_marks[same]:
        same += 1
    states = ["same"] * len(marks)
    diffs: dict[int, tuple[Markup, str]] = {}
    counts = {"new": 0, "changed": 0, "gone": 0}
    matcher = difflib.SequenceMatcher(None, old_marks[same:], marks[same:], autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            continue
        pairs = _pairs(old[same + a : same + b], sent[same + c : same + d])
        for at in range(c, d):
            partner = pairs.get(at - c)
            if partner is None:
                states[same + at] = "new"
                counts["new"] += 1
            else:
                states[same + at] = "changed"
                counts["changed"] += 1
                diffs[same + at] = _word_diff(text_of(partner), text_of(sent[same + at]))
        counts["gone"] += (b - a) - len(pairs)
    return states, diffs, counts, same


def _pairs(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]
) -> dict[int, Mapping[str, Any]]:
    """Return for each new message the old one that it is another form of."""
    left = list(old)
    found: dict[int, Mapping[str, Any]] = {}
    for place, message in enumerate(new):
        text = text_of(message)[:200]
        for candidate in left:
            other = text_of(candidate)[:200]
            alike = candidate.get("tool_call_id") == message.get("tool_call_id")
            if candidate.get("role") == message.get("role") and alike and other[:24] == text[:24]:
                found[place] = candidate
                left.remove(candidate)
                break
    return found


def _word_diff(old: str, new: str) -> tuple[Markup, str]:
    """Return what changed, word by word with some words around, and how many words."""
    before, after = (re.findall(r"\s+|\S+", text)[:_WORDS] for text in (old, new))
    parts, added, removed = Markup(""), 0, 0
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=len(after) > 1_000)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            words = after[c:d]
            shown = (
                "".join(words)
                if len(words) <= 12
                else f"{''.join(words[:5])} … {''.join(words[-5:])}"
            )
            parts += escape(rich_text.visible(shown))
            continue
        if b > a:
            removed += sum(1 for word in before[a:b] if word.strip())
            parts += Markup("<del>{}</del>").format(rich_text.visible("".join(before[a:b])[:2_000]))
        if d > c:
            added += sum(1 for word in after[c:d] if word.strip())
            parts += Markup("<ins>{}</ins>").format(rich_text.visible("".join(after[c:d])[:2_000]))
    return parts, f"+{added} −{removed} words"  # noqa: RUF001 - a minus sign


def _prefix_tokens(seen: Seen, messages: int) -> int:
    tokenizer = tokenizer_for(seen.view.encoding)
    return count_messages(seen.view.messages[:messages], tokenizer).tokens
