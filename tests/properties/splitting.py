"""Whole answers, split into the pieces that each specification and its servers send.

Each chunk comes with what it adds to the answer, so that a judge can put the answer together
without any parser: a text, a name, an id or a piece of arguments of the call with a number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

__all__ = ["SPLITTERS", "Answer", "Chunk", "Quirks", "answer_from", "put_together"]


@dataclass(frozen=True)
class Call:
    """A tool call of an answer."""

    call_id: str
    name: str
    arguments: dict[str, Any]


@dataclass
class Answer:
    """A whole answer."""

    text: str
    calls: list[Call] = field(default_factory=list)


@dataclass(frozen=True)
class Chunk:
    """A chunk of a stream, and what it adds: kind, number of the call, and a piece of text.

    The kinds are ``text``, ``name``, ``arguments`` (a piece of their JSON), and ``string of KEY``
    (a piece of the argument of that name).

    Attributes:
        needed: Whether the stream cannot be understood without it.
    """

    value: dict[str, Any]
    adds: tuple[tuple[str, int, str], ...] = ()
    needed: bool = True


@dataclass(frozen=True)
class Quirks:
    """What a server does that its specification does not ask for."""

    numbers: str = "own"
    repeats_names: bool = False
    placeholders: bool = False
    values: bool = False
    repeats_whole: bool = False
    interleaved: bool = False
    numbers_from: int = 0


_WORDS = ("", "Rome", "data: x", '"}{', "\\", "a\nb", "\u2028", "é😀", "[DONE]", "{}", "1", " ")


def answer_from(random: Random) -> Answer:
    """Return an answer."""
    text = "".join(random.choice(_WORDS) for _ in range(random.randrange(5)))
    calls = [
        Call(f"c{number}", random.choice(("f", "get_weather", "g")), _arguments(random))
        for number in range(random.randrange(4))
    ]
    return Answer(text or ("" if calls else "hello"), calls)


def _arguments(random: Random) -> dict[str, Any]:
    return {f"k{n}": _value(random, 2) for n in range(random.randrange(3))}


def _value(random: Random, depth: int) -> Any:
    match random.randrange(6 if depth else 4):
        case 0:
            return random.choice(_WORDS)
        case 1:
            return random.randrange(-5, 100)
        case 2:
            return random.choice((True, False, None))
        case 4:
            return [_value(random, depth - 1) for _ in range(random.randrange(3))]
        case 5:
            return {f"x{n}": _value(random, depth - 1) for n in range(random.randrange(3))}
        case _:
            return random.choice(_WORDS)


def pieces_of(random: Random, text: str) -> list[str]:
    """Return a text in pieces, none of them empty."""
    cuts = (
        sorted({random.randrange(1, len(text)) for _ in range(random.randrange(4))})
        if len(text) > 1
        else []
    )
    found = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    return [piece for piece in found if piece]


def mixed(random: Random, rows: list[list[Chunk]]) -> Iterator[Chunk]:
    """Yield the chunks of several rows, each row in its order; they begin in their order."""
    left = [row[:] for row in rows if row]
    begun = 0
    while any(left):
        open_rows = [number for number in range(min(begun + 1, len(left))) if left[number]]
        number = random.choice(open_rows)
        begun = max(begun, number + 1)
        yield left[number].pop(0)


def put_together(chunks: list[Chunk]) -> tuple[str, list[tuple[str, str]]]:
    """Return the text of chunks, and names and arguments of their calls, by what each adds."""
    text, names, arguments = "", dict[int, str](), dict[int, str]()
    strings: dict[int, dict[str, str]] = {}
    for chunk in chunks:
        for kind, number, piece in chunk.adds:
            if kind == "text":
                text += piece
            elif kind == "name":
                names[number] = names.get(number, "") + piece
            elif kind == "arguments":
                arguments[number] = arguments.get(number, "") + piece
            else:
                key = kind.removeprefix("string of ")
                values = strings.setdefault(number, {})
                values[key] = values.get(key, "") + piece
                arguments[number] = json.dumps(values)
    return text, [(names[n], arguments.get(n, "")) for n in sorted(names)]


def chat(random: Random, answer: Answer, quirks: Quirks) -> list[Chunk]:
    """Split into chunks of chat completions."""
    filler: dict[str, Any] = {}
    if quirks.placeholders:
        filler = {"function_call": {"name": "", "arguments": ""}, "refusal": "", "tool_calls": None}
        filler |= {"reasoning_content": None, "audio": {}}

    def chunk(delta: dict[str, Any], *adds: Any, needed: bool = True, finish: Any = None) -> Chunk:
        blank = "" if quirks.placeholders else None
        choice = {"index": 0, "delta": {**filler, **delta}, "finish_reason": finish or blank}
        return Chunk({"id": "x", "choices": [choice]}, adds, needed)

    found = [chunk({"role": "assistant", "content": ""}, needed=False)]
    found += [
        chunk({"content": piece}, ("text", 0, piece), needed=False)
        for piece in pieces_of(random, answer.text)
    ]
    rows: list[list[Chunk]] = []
    rising = 0
    for number, call in enumerate(answer.calls):
        text = json.dumps(call.arguments)
        row: list[Chunk] = []

        def piece(
            name: Any, given: Any, arguments: Any, *adds: Any, number: int = number, **options: Any
        ) -> Chunk:
            nonlocal rising
            part: dict[str, Any] = {"function": {"arguments": arguments}}
            if name is not None:
                part["function"]["name"] = name
            if given is not None:
                part["id"] = given
            if quirks.numbers == "own":
                part["index"] = number + quirks.numbers_from
            elif quirks.numbers == "zero":
                part["index"] = 0
            elif quirks.numbers == "rising":
                part["index"] = rising
                rising += 1
            return chunk({"tool_calls": [part]}, *adds, **options)

        whole = [text] if quirks.values else pieces_of(random, text)
        first = call.arguments if quirks.values and call.arguments else None
        again = (call.name, call.call_id) if quirks.repeats_names else (None, None)
        if quirks.placeholders and not quirks.repeats_names:
            again = ("", "")
        if first is not None:
            row.append(
                piece(
                    call.name,
                    call.call_id,
                    first,
                    ("name", number, call.name),
                    ("arguments", number, text),
                )
            )
        else:
            row.append(piece(call.name, call.call_id, "", ("name", number, call.name)))
            by_id = call.call_id if quirks.numbers == "none" else again[1]
            row += [piece(again[0], by_id, each, ("arguments", number, each)) for each in whole]
        if quirks.repeats_whole:
            row.append(piece(call.name, call.call_id, text, needed=False))
        rows.append(row)
    found += mixed(random, rows) if quirks.interleaved else [each for row in rows for each in row]
    reason = "tool_calls" if answer.calls else "stop"
    return [*found, chunk({}, finish=reason)]


def responses(random: Random, answer: Answer, quirks: Quirks) -> list[Chunk]:
    """Split into events of Responses."""
    rows, output = [], []
    if answer.text:
        body: dict[str, Any] = {"type": "message", "id": "m0", "role": "assistant", "content": []}
        row = [Chunk({"type": "response.output_item.added", "output_index": 0, "item": body})]
        row += [
            Chunk(
                {
                    "type": "response.output_text.delta",
                    "output_index": 0,
                    "item_id": "m0",
                    "content_index": 0,
                    "delta": piece,
                },
                (("text", 0, piece),),
            )
            for piece in pieces_of(random, answer.text)
        ]
        output.append({**body, "content": [{"type": "output_text", "text": answer.text}]})
        rows.append(row)
    for number, call in enumerate(answer.calls):
        place = 0 if quirks.numbers == "zero" else number + 1
        body = {
            "type": "function_call",
            "id": f"i{number}",
            "call_id": call.call_id,
            "name": call.name,
            "arguments": {} if quirks.placeholders else "",
        }
        text = json.dumps(call.arguments)
        row = [
            Chunk(
                {"type": "response.output_item.added", "output_index": place, "item": body},
                (("name", number, call.name),),
            )
        ]
        stem = "response.function_call_arguments"
        for piece in pieces_of(random, text):
            event = {"type": f"{stem}.delta", "output_index": place, "delta": piece}
            if quirks.numbers == "zero" or random.random() < 0.5:
                event["item_id"] = f"i{number}"
            row.append(Chunk(event, (("arguments", number, piece),)))
        done: dict[str, Any] = {
            "type": f"{stem}.done",
            "output_index": place,
            "item_id": f"i{number}",
            "arguments": text,
        }
        row.append(Chunk(done, needed=False))
        whole = {**body, "arguments": text}
        row.append(
            Chunk(
                {"type": "response.output_item.done", "output_index": place, "item": whole},
                needed=False,
            )
        )
        rows.append(row)
        output.append(whole)
    found = list(mixed(random, rows)) if quirks.interleaved else [c for row in rows for c in row]
    end = {"id": "r", "status": "completed", "output": [] if quirks.placeholders else output}
    start = {"type": "response.created", "response": {"id": "r", "model": "m", "output": None}}
    return [Chunk(start), *found, Chunk({"type": "response.completed", "response": end})]


def _blocks(
    random: Random,
    answer: Answer,
    quirks: Quirks,
    text: Callable[[int, str], dict[str, Any]],
    begin: Callable[[int, Call], dict[str, Any]],
    grow: Callable[[int, str], dict[str, Any]],
    stop: Callable[[int], dict[str, Any]],
    open_text: Callable[[int], dict[str, Any] | None] = lambda _: None,
) -> list[Chunk]:
    rows = []
    if answer.text:
        row = [Chunk(each) for each in [open_text(0)] if each is not None]
        row += [
            Chunk(text(0, piece), (("text", 0, piece),)) for piece in pieces_of(random, answer.text)
        ]
        rows.append([*row, Chunk(stop(0), needed=False)])
    for number, call in enumerate(answer.calls):
        place = 0 if quirks.numbers == "zero" else number + 1
        row = [Chunk(begin(place, call), (("name", number, call.name),))]
        for step, piece in enumerate(pieces_of(random, json.dumps(call.arguments))):
            at = place + step if quirks.numbers == "rising" else place
            row.append(Chunk(grow(at, piece), (("arguments", number, piece),)))
        rows.append([*row, Chunk(stop(place), needed=quirks.numbers != "own")])
    alone = quirks.numbers != "own" or not quirks.interleaved
    return [c for row in rows for c in row] if alone else list(mixed(random, rows))


def anthropic(random: Random, answer: Answer, quirks: Quirks) -> list[Chunk]:
    """Split into events of Anthropic's Messages."""

    def opened(index: int, block: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_start", "index": index, "content_block": block}

    def delta(index: int, kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}

    empty: dict[str, Any] = {"citations": None} if quirks.placeholders else {}
    found = _blocks(
        random,
        answer,
        quirks,
        lambda index, piece: delta(index, "text_delta", text=piece),
        lambda index, call: opened(
            index, {"type": "tool_use", "id": call.call_id, "name": call.name, "input": {}}
        ),
        lambda index, piece: delta(index, "input_json_delta", partial_json=piece),
        lambda index: {"type": "content_block_stop", "index": index},
        lambda index: opened(index, {"type": "text", "text": "", **empty}),
    )
    message = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "m"}
    start = Chunk({"type": "message_start", "message": {**message, "stop_reason": None}})
    reason = "tool_use" if answer.calls else "end_turn"
    end = Chunk({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {}})
    twice = [start] if quirks.placeholders else []
    return [start, *twice, *found, end, Chunk({"type": "message_stop"})]


def bedrock(random: Random, answer: Answer, quirks: Quirks) -> list[Chunk]:
    """Split into events of Bedrock's Converse."""

    def delta(index: int, **fields: Any) -> dict[str, Any]:
        unset = {"text": None, "toolUse": None, "reasoningContent": None}
        filler = unset if quirks.placeholders else {}
        return {"contentBlockDelta": {"delta": {**filler, **fields}, "contentBlockIndex": index}}

    found = _blocks(
        random,
        answer,
        quirks,
        lambda index, piece: delta(index, text=piece),
        lambda index, call: {
            "contentBlockStart": {
                "start": {"toolUse": {"toolUseId": call.call_id, "name": call.name}},
                "contentBlockIndex": index,
            }
        },
        lambda index, piece: delta(index, toolUse={"input": piece}),
        lambda index: {"contentBlockStop": {"contentBlockIndex": index}},
    )
    reason = "tool_use" if answer.calls else "end_turn"
    start = Chunk({"messageStart": {"role": "assistant"}})
    return [start, *found, Chunk({"messageStop": {"stopReason": reason}})]


def cohere(random: Random, answer: Answer, quirks: Quirks) -> list[Chunk]:
    """Split into events of Cohere's chat."""

    def event(kind: str, index: int, **message: Any) -> dict[str, Any]:
        filler = {"tool_plan": "", "citations": []} if quirks.placeholders else {}
        return {"type": kind, "index": index, "delta": {"message": {**filler, **message}}}

    found = _blocks(
        random,
        answer,
        quirks,
        lambda index, piece: event("content-delta", index, content={"text": piece}),
        lambda index, call: event(
            "tool-call-start",
            index,
            tool_calls={"id": call.call_id, "function": {"name": call.name, "arguments": ""}},
        ),
        lambda index, piece: event(
            "tool-call-delta", index, tool_calls={"function": {"arguments": piece}}
        ),
        lambda index: {"type": "tool-call-end", "index": index},
    )
    reason = "TOOL_CALL" if answer.calls else "COMPLETE"
    start = Chunk({"type": "message-start", "id": "x", "delta": {"message": {}}})
    return [start, *found, Chunk({"type": "message-end", "delta": {"finish_reason": reason}})]


def interactions(random: Random, answer: Answer, quirks: Quirks) -> list[Chunk]:
    """Split into events of Gemini's Interactions."""

    def event(kind: str, index: int, **fields: Any) -> dict[str, Any]:
        return {"event_type": f"step.{kind}", "index": index, **fields}

    empty: dict[str, Any] = {"arguments": {}} if quirks.placeholders else {}
    found = _blocks(
        random,
        answer,
        quirks,
        lambda index, piece: event("delta", index, delta={"type": "text", "text": piece}),
        lambda index, call: event(
            "start",
            index,
            step={"type": "function_call", "id": call.call_id, "name": call.name, **empty},
        ),
        lambda index, piece: event(
            "delta", index, delta={"type": "arguments_delta", "arguments": piece}
        ),
        lambda index: event("stop", index),
        lambda index: event("start", index, step={"type": "model_output", "content": None}),
    )
    start = {"event_type": "interaction.created", "interaction": {"status": "in_progress"}}
    end = {"event_type": "interaction.completed", "interaction": {"status": "completed"}}
    return [Chunk(start), *found, Chunk(end)]


def gemini(random: Random, answer: Answer, quirks: Quirks) -> list[Chunk]:
    """Split into answers of Gemini's: calls whole, or with the place of each value."""

    def chunk(part: dict[str, Any], *adds: Any) -> Chunk:
        parts = [{"text": ""}, part] if quirks.placeholders else [part]
        return Chunk({"candidates": [{"content": {"parts": parts, "role": "model"}}]}, adds)

    found = [chunk({"text": piece}, ("text", 0, piece)) for piece in pieces_of(random, answer.text)]
    for number, call in enumerate(answer.calls):
        names: dict[str, Any] = {"name": call.name}
        if quirks.numbers == "own":
            names["id"] = call.call_id
        name = ("name", number, call.name)
        simple = all(isinstance(each, str) and each for each in call.arguments.values())
        if not (quirks.interleaved and simple and call.arguments):
            whole = ("arguments", number, json.dumps(call.arguments))
            found.append(chunk({"functionCall": {**names, "args": call.arguments}}, name, whole))
            continue
        found.append(chunk({"functionCall": {**names, "willContinue": True}}, name))
        for key, value in call.arguments.items():
            for piece in pieces_of(random, value):
                partial = {"jsonPath": f"$.{key}", "stringValue": piece, "willContinue": True}
                part = {"partialArgs": [partial], "willContinue": True}
                adds = (f"string of {key}", number, piece)
                found.append(chunk({"functionCall": part}, adds))
        found.append(chunk({"functionCall": {}}))
    end = {"candidates": [{"content": {"parts": []}, "finishReason": "STOP"}]}
    return [*found, Chunk(end)]


def ollama(random: Random, answer: Answer, quirks: Quirks) -> list[Chunk]:
    """Split into lines of Ollama's: its calls come whole."""

    def chunk(message: dict[str, Any], *adds: Any) -> Chunk:
        filler = {"thinking": "", "tool_calls": None} if quirks.placeholders else {}
        return Chunk({"message": {"content": "", **filler, **message}, "done": False}, adds)

    found = [
        chunk({"content": piece}, ("text", 0, piece)) for piece in pieces_of(random, answer.text)
    ]
    for number, call in enumerate(answer.calls):
        body: dict[str, Any] = {"name": call.name, "arguments": call.arguments}
        adds = ("name", number, call.name), ("arguments", number, json.dumps(call.arguments))
        found.append(chunk({"tool_calls": [{"function": {**body, "index": 0}}]}, *adds))
    return [*found, Chunk({"message": {"content": ""}, "done": True, "done_reason": "stop"})]


SPLITTERS: dict[str, Callable[[Random, Answer, Quirks], list[Chunk]]] = {
    "openai_chat": chat,
    "openai_responses": responses,
    "anthropic_messages": anthropic,
    "gemini_generate_content": gemini,
    "gemini_interactions": interactions,
    "ollama_chat": ollama,
    "cohere_chat": cohere,
    "bedrock_converse": bedrock,
}
