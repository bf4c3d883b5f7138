"""Facts in messages: names, numbers, paths, each found by a fixed pattern.

A fact is a short literal that a later tool call may need exactly: an order number, a date, a path,
a person's name. Facts are kept longer than the prose around them. Numbers that only state a
quantity (prices, counts) are not facts. The patterns are fixed, so the same text always has the
same facts. If you change a pattern, raise the version of the projection that stores the facts.

Messages are in OpenAI's chat format, but unchecked: fields of an unexpected type are skipped. Tool
calls may call functions or custom tools, or be in the older form ``function_call``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Literal, NamedTuple

__all__ = [
    "LONGEST_FACT",
    "Fact",
    "FactKind",
    "calls_of",
    "facts_of_json",
    "facts_of_messages",
    "facts_of_text",
    "json_of",
    "lasting_facts",
    "may_be_json",
    "names_identifier",
    "texts_of",
]

FactKind = Literal["rule", "identifier", "conclusion", "name", "phrase", "term"]
"""``rule``: a lasting statement of a user; ``identifier``: an id, date, path, address;
``conclusion``: the sentence with which an answer concludes; ``name``: a proper noun; ``phrase``: a
short value of several words; ``term``: a word from a fixed vocabulary, such as a status."""

LONGEST_FACT = 512
"""The most characters of a fact: longer literals, such as encoded data, are no facts."""

MOST_FACTS = 64
"""The most facts of one message: the first ones are kept."""

_DEEPEST = 100
_BRACKET = re.compile(r"[\[\]{}]")

_READ = 100_000  # characters; the rest of a text is not searched
_LONGEST_TERM = 48
_LONGEST_PHRASE = 64
_LEAST_DIGITS = 5
_LEAST_NUMBER = 10**_LEAST_DIGITS

# ASCII only: in a script without spaces between words, an identifier ends at the first letter of
# that script. The lookbehinds and length limits keep the time linear on very long runs. Lower-case
# words contain no facts: the second line skips a run of them, which is most of any prose, at once.
_LITERAL = re.compile(
    r"(?=[\w~.@/#-])(?:"
    r"(?<!\S)(?:[a-z]++[.,;:!?]?(?:\s++|\Z))+"
    r"|((?<![\w.+])[A-Za-z0-9][\w.+-]{0,63}+@[A-Za-z0-9-]+\.[A-Za-z0-9.-]*[A-Za-z0-9]"
    r"|https?://[^\s\"'<>()\[\]{}]+[A-Za-z0-9/]"
    r"|(?<![\w./~@-])[~.@]{0,2}/?(?:[A-Za-z0-9_.-]++/)+[A-Za-z0-9_.-]*[A-Za-z0-9_]"
    r"|#?[A-Za-z0-9]++(?:[_:.-][A-Za-z0-9]++)*+))",
    re.ASCII,
)
_QUOTED = re.compile(r"[「『《“]([^「」『』《》“”\n]{2,40})[」』》”]")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ][\d:.]+)?")
_MEASURE = re.compile(r"\d[\d.,:]*(?:st|nd|rd|th|am|pm|k|m|s|x|kg|lb|lbs|mb|gb|%)", re.IGNORECASE)
_BEFORE_A_SENTENCE = frozenset(".!?:;*•-\"'(#>]")
# German writes every noun with a capital: after a determiner, and possibly one adjective, it is no
# name. The words of the first pattern are not English, and frequent in any German text.
_GERMAN = re.compile(
    r"(?:der|das|den|dem|und|ist|nicht|ein|eine|einen|für|mit|auf|von|zu|wir|ich|wieder)"
)
_DETERMINED = re.compile(
    r"\b(?:[dD](?:er|ie|as|en|em|es)|(?:[kKmMdDsS]|)[eE]in(?:e[nmrs]?)?|[uU]nser\w{0,2}|[iI]hre?[nmrs]?"
    r"|[dD]iese[nmrs]?|[jJ]ede[nmrs]?|[wW]elche[nmrs]?|[aA]lle[nr]?|[vV]iele|[eE]inige|[aA]m|[iI]m|[zZ]u[mr]"
    r"|[bB]eim|[vV]om|[iI]ns|[aA]ns)\s+(?:[a-zäöüß]+e[nmrs]?\s+)?\Z"
)
_LONGEST_BEFORE = 48  # characters
_LANGUAGE_SHOWS = 5_000  # characters
_SURROGATE = re.compile("[\ud800-\udfff]")
_CJK = re.compile(r"[\u3041-\u30fa\u4e00-\u9fa5\uac00-\ud7a3]")


def texts_of(message: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts in a message's content; tool calls are not included."""
    content = message.get("content")
    if isinstance(content, str):
        yield content
    elif isinstance(content, list | tuple):
        for part in content:
            text = part.get("text") if isinstance(part, Mapping) else part
            if isinstance(text, str):
                yield text


def calls_of(message: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the name and the arguments of each tool call, in order."""
    calls = message.get("tool_calls")
    older = message.get("function_call")
    if calls is None and older is None:
        return []
    listed = list(calls) if isinstance(calls, list | tuple) else []
    if isinstance(older, Mapping):
        listed.append({"function": older})
    inner = [call.get("function") or call.get("custom") for call in listed if hasattr(call, "get")]
    return [_name_and_arguments(call) for call in inner if isinstance(call, Mapping)]


def json_of(text: str) -> Any:
    """Return the value of a text that is a JSON object or list; None for any other text.

    Also returns None if the value nests more than 100 levels deep: parsing it could succeed or fail
    depending on how much stack is left.
    """
    if not may_be_json(text):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def may_be_json(text: str) -> bool:
    """Whether a text begins like a JSON object or list and nests at most 100 levels deep."""
    if text[:1] not in ("{", "["):
        return False
    if text.count("{") + text.count("[") <= _DEEPEST:
        return True
    depth = 0
    for found in _BRACKET.finditer(_without_strings(text)):
        depth += 1 if found.group() in "[{" else -1
        if depth > _DEEPEST:
            return False
    return True


def _without_strings(text: str) -> str:
    """Return JSON text without its strings: the brackets in them do not nest."""
    if "\\" in text:
        text = text.replace("\\\\", "").replace('\\"', "")
    return "".join(text.split('"')[::2])


def _name_and_arguments(call: Mapping[str, Any]) -> tuple[str, str]:
    arguments = call.get("arguments", call.get("input"))
    if arguments is None:
        arguments = ""
    elif not isinstance(arguments, str):
        arguments = json.dumps(arguments, default=str, ensure_ascii=False)
    return str(call.get("name") or ""), arguments


class Fact(NamedTuple):
    """A literal and its kind."""

    text: str
    kind: FactKind


def facts_of_text(text: str) -> Iterator[Fact]:
    """Yield the facts in prose, in order; a fact may be yielded more than once."""
    german: bool | None = None
    for found in _LITERAL.finditer(text, 0, _READ):
        literal = found[1]
        if literal is None:
            continue
        if not literal.isalpha() and _is_identifier(literal):
            yield Fact(literal, "identifier")
        elif literal[0].isupper() and len(literal) > 2 and not _begins_sentence(text, found):
            german = _is_german(text) if german is None else german
            if german and _is_determined(text, found.start()):
                continue
            yield Fact(literal, "name")
    if text.isascii():
        return  # None of the quotation marks in _QUOTED is ASCII.
    for quoted in _QUOTED.finditer(text, 0, _READ):
        yield Fact(quoted.group(1), "phrase")


def _is_german(text: str) -> bool:
    """Whether at least two different words of a text, and every tenth, are common German ones."""
    words = text[:_LANGUAGE_SHOWS].split()
    known = [word for word in words if _GERMAN.fullmatch(word.lower())]
    return len(set(known)) > 1 and 10 * len(known) >= len(words)


def _is_determined(text: str, at: int) -> bool:
    return _DETERMINED.search(text[max(0, at - _LONGEST_BEFORE) : at]) is not None


def names_identifier(text: str) -> bool:
    """Whether the facts in prose include an identifier; stops at the first one."""
    for found in _LITERAL.finditer(text, 0, _READ):
        literal = found[1]
        if literal is not None and not literal.isalpha() and _is_identifier(literal):
            return True
    return False


def facts_of_json(value: Any) -> Iterator[Fact]:
    """Yield the facts in a JSON value, in order; a key is a fact only if it is an identifier."""
    if isinstance(value, dict):
        if value.keys() == {"columns", "rows"}:
            value = {"rows": value["rows"]}  # The columns of a table are keys.
        for key, child in value.items():
            if any(map(str.isdigit, key)) and _is_identifier(key):
                yield Fact(key, "identifier")
            yield from facts_of_json(child)
    elif isinstance(value, list):
        for child in value:
            yield from _facts_of_value(child) if isinstance(child, str) else facts_of_json(child)
    elif isinstance(value, str):
        yield from _facts_of_value(value)
    elif isinstance(value, int) and not isinstance(value, bool) and abs(value) >= _LEAST_NUMBER:
        yield Fact(str(value), "identifier")


def facts_of_messages(messages: Iterable[Mapping[str, Any]]) -> tuple[Fact, ...]:
    """Return the distinct facts in messages of OpenAI's chat format, in order."""
    found: dict[str, Fact] = {}
    for message in messages:
        here: dict[str, Fact] = {}
        for fact in chain.from_iterable(map(_facts_of_content, _texts(message))):
            text = fact.text
            if text in found or len(text) > LONGEST_FACT:
                continue
            if text.isascii() or _is_whole(text):
                here.setdefault(text, fact)
                if len(here) >= MOST_FACTS:
                    break
        found.update(here)
    return tuple(found.values())


def lasting_facts(
    messages: Iterable[Mapping[str, Any]], shorter: Iterable[Mapping[str, Any]]
) -> tuple[Fact, ...]:
    """Return the facts in messages that their shorter form contains too.

    So no level of detail contains a fact that a higher level lacks.
    """
    facts = facts_of_messages(messages)
    if not facts:
        return facts
    remaining_text = "\n".join(text for message in shorter for text in _texts(message))
    return tuple(fact for fact in facts if _says(remaining_text, fact.text))


def _says(content: str, fact: str) -> bool:
    return fact in content or json.dumps(fact, ensure_ascii=False)[1:-1] in content


def _texts(message: Mapping[str, Any]) -> Iterator[str]:
    yield from (arguments for _, arguments in calls_of(message))
    yield from texts_of(message)


def _facts_of_content(content: str) -> Iterator[Fact]:
    value = json_of(content)
    return facts_of_text(content) if value is None else facts_of_json(value)


def _facts_of_value(value: str) -> Iterable[Fact]:
    if " " not in value and "\n" not in value and 1 < len(value) <= _LONGEST_TERM:
        if not value.isalpha() and _is_identifier(value):
            return (Fact(value, "identifier"),)
        if value[0].isupper() or (not value.isascii() and _CJK.search(value)):
            return (Fact(value, "name"),)
        return (Fact(value, "term"),) if len(value) > 3 else ()
    if len(value) > _LONGEST_PHRASE or "\n" in (stripped := value.strip()):
        return facts_of_text(value)
    return (Fact(stripped, "phrase"),) if stripped else ()


def _is_whole(text: str) -> bool:
    """Whether the text contains no surrogate."""
    return _SURROGATE.search(text) is None


def _is_identifier(literal: str) -> bool:
    """Whether a literal that does not consist of letters only is an identifier."""
    if "@" in literal or "/" in literal or "_" in literal or _DATE.fullmatch(literal):
        return True
    if not any(map(str.isalpha, literal)):
        return sum(map(str.isdigit, literal)) >= _LEAST_DIGITS
    is_long_number = len(literal) > 3 and any(map(str.isdigit, literal))
    return is_long_number and not _MEASURE.fullmatch(literal)


def _begins_sentence(text: str, found: re.Match[str]) -> bool:
    start = found.start()
    before = text[max(0, start - 4) : start]
    preceding = before.rstrip()
    if not preceding or preceding[-1] in _BEFORE_A_SENTENCE:
        return True
    blank = before[len(preceding) :]
    return "\n" in blank or (blank != "" and preceding[-1] == ")" and preceding[-2:-1].isdecimal())
