"""The demo's scripted model, and its tools: real ones, confined to a folder.

The model streams recorded replies as OpenAI's chat-completion chunks, each as a dict, as the chat
endpoint does with ``stream`` and ``include_usage``. Its usage is counted from the messages it
actually gets and the reply.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from eventstore.events import JsonObject
from projections.tokens import count_messages, count_tools, tokenizer_for

__all__ = [
    "DEFINITIONS",
    "IDEMPOTENT",
    "MODEL",
    "Outcome",
    "Reply",
    "ScriptedModel",
    "Wanted",
    "Workspace",
    "text_of",
]


Outcome = tuple[Literal["success", "failed"], str]
"""The status of a tool's run, and its result or the reason of the failure."""

_TIMEOUT_S = 60

MODEL = "gpt-4o"

_SNAPSHOT = "gpt-4o-2024-08-06"
_PIECES = re.compile(r"[\u3000-\u9fff\uff00-\uffef]|\s*[^\s\u3000-\u9fff\uff00-\uffef]+|\s+")
_ARGUMENT_PIECES = re.compile(r".{1,12}", re.DOTALL)


def _definition(name: str, description: str, *required: str) -> JsonObject:
    properties = {each: {"type": "string"} for each in required}
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


DEFINITIONS: tuple[JsonObject, ...] = (
    _definition("list_files", "List the files of the project."),
    _definition("read_file", "Return the text of a file.", "path"),
    _definition("write_file", "Write a file, and replace it if it exists.", "path", "text"),
    _definition("append_line", "Write a line at the end of a file.", "path", "line"),
    _definition("run_tests", "Run the project's tests and return their output."),
)
"""The tool definitions sent to the model, in OpenAI's format."""

IDEMPOTENT = frozenset({"list_files", "read_file", "write_file", "run_tests"})
"""The tools that may run twice without harm; appending a line twice adds it twice."""


class Workspace:
    """A folder with a small project, and the tools that work on it.

    Args:
        folder: An existing folder.
        files: The files to create there, by name.
    """

    def __init__(self, folder: Path, files: Mapping[str, str]) -> None:
        self.folder = folder.resolve()
        for name, text in files.items():
            (self.folder / name).write_text(text, encoding="utf-8")

    def run(self, name: str, arguments: JsonObject | None) -> Outcome:
        """Run a tool; an error is an outcome, never an exception."""
        tools: dict[str, Callable[..., str]] = {
            "list_files": self._list_files,
            "read_file": self._read_file,
            "write_file": self._write_file,
            "append_line": self._append_line,
            "run_tests": self._run_tests,
        }
        try:
            return "success", tools[name](**(arguments or {}))
        except KeyError:
            return "failed", f"there is no tool {name}"
        except (OSError, ValueError, TypeError, subprocess.SubprocessError) as error:
            return "failed", self._local(f"{type(error).__name__}: {error}")

    def _list_files(self) -> str:
        files = (path for path in self.folder.rglob("*") if path.is_file())
        names = (path.relative_to(self.folder) for path in files)
        return "\n".join(sorted(str(name) for name in names if "__pycache__" not in name.parts))

    def _read_file(self, path: str) -> str:
        return self._inside(path).read_text(encoding="utf-8")

    def _write_file(self, path: str, text: str) -> str:
        written = self._inside(path).write_text(text, encoding="utf-8")
        return f"wrote {written} characters to {path}"

    def _append_line(self, path: str, line: str) -> str:
        with self._inside(path).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        return f"wrote a line to {path}"

    def _run_tests(self) -> str:
        # -B: a cached module with the same second and size would hide a change from the tests.
        command = [sys.executable, "-B", "-m", "unittest", "--verbose"]
        done = subprocess.run(  # noqa: S603 - our own interpreter, on files that the demo wrote
            command,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        return self._local(f"exit status {done.returncode}\n{done.stdout}".rstrip())

    def _inside(self, path: str) -> Path:
        found = (self.folder / path).resolve()
        if not found.is_relative_to(self.folder):
            raise ValueError(f"{path} is outside of the project")
        return found

    def _local(self, text: str) -> str:
        # The folder's location tells the model nothing, and differs from run to run.
        return text.replace(f"{self.folder}/", "").replace(str(self.folder), ".")


@dataclass(frozen=True, slots=True, init=False)
class Wanted:
    """A tool call that the model requests."""

    name: str
    arguments: JsonObject = field(default_factory=dict)

    def __init__(self, name: str, **arguments: Any) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "arguments", arguments)


@dataclass(frozen=True, slots=True)
class Reply:
    """A recorded reply; ``breaks_off`` is the network error that ends its stream early."""

    text: str
    calls: tuple[Wanted, ...] = ()
    breaks_off: str | None = None


class ScriptedModel:
    """Plays one reply per call, in order.

    Args:
        replies: The replies.
        delay_s: The delay before each piece, in seconds.
        tools: The tool definitions sent with the messages, which count as prompt tokens.
    """

    def __init__(
        self,
        replies: Sequence[Reply],
        *,
        delay_s: float = 0.004,
        tools: Sequence[JsonObject] = (),
    ) -> None:
        self._replies = iter(replies)
        self._tools = tools
        self._delay_s = delay_s
        self._answers = 0

    def stream(self, messages: Sequence[JsonObject]) -> Iterator[JsonObject]:
        """Yield the chunks of the next reply.

        Raises:
            ConnectionError: The reply breaks off.
        """
        reply = next(self._replies)
        self._answers += 1
        yield self._chunk({"role": "assistant", "content": ""})
        deltas = [{"content": piece} for piece in _PIECES.findall(reply.text)]
        for index, wanted in enumerate(reply.calls):
            deltas += self._call_deltas(index, wanted)
        for delta in deltas:
            time.sleep(self._delay_s)
            yield self._chunk(delta)
        if reply.breaks_off is not None:
            raise ConnectionError(reply.breaks_off)
        yield self._chunk({}, finish_reason="tool_calls" if reply.calls else "stop")
        yield {**self._chunk({}), "choices": [], "usage": _usage(messages, self._tools, reply)}

    def _call_deltas(self, index: int, wanted: Wanted) -> list[JsonObject]:
        digest = hashlib.sha256(f"{self._answers}.{index}".encode()).hexdigest()
        function = {"name": wanted.name, "arguments": ""}
        first = {"index": index, "id": f"call_{digest[:24]}", "type": "function"}
        rest = (
            {"index": index, "function": {"arguments": piece}}
            for piece in _ARGUMENT_PIECES.findall(_arguments(wanted))
        )
        return [{"tool_calls": [each]} for each in ({**first, "function": function}, *rest)]

    def _chunk(self, delta: JsonObject, finish_reason: str | None = None) -> JsonObject:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return {
            "id": f"chatcmpl-demo-{self._answers:04}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": _SNAPSHOT,
            "choices": [choice],
            "usage": None,
        }


def text_of(chunk: JsonObject) -> str:
    """Return the text that a chunk adds to the answer."""
    return "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])


def _arguments(wanted: Wanted) -> str:
    return json.dumps(wanted.arguments, ensure_ascii=False)


def _usage(messages: Sequence[JsonObject], tools: Sequence[JsonObject], reply: Reply) -> JsonObject:
    tokenizer = tokenizer_for(MODEL)
    written = (reply.text, *(f"{each.name}{_arguments(each)}" for each in reply.calls))
    prompt = (count_messages(messages, tokenizer) + count_tools(tools, tokenizer)).tokens
    completion = sum(tokenizer.count(text).tokens for text in written)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }
