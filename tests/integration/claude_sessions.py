"""Lines of Claude Code's session files, as version 2.1 writes them."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

SESSION = "6d1f0f52-3a0e-4c5b-9f0e-2d2f5b8f7a10"
MODEL = "claude-sonnet-4-5-20250929"


class Session:
    """A session's file in the making; each line follows the newest unless it names its parent."""

    def __init__(self, session: str = SESSION) -> None:
        self.lines: list[dict[str, Any]] = []
        self._session = session
        self._numbers = count(1)
        self._parent: str | None = None

    def bare(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Add a line that is outside the tree."""
        self.lines.append({"type": kind, "sessionId": self._session, **fields})
        return self.lines[-1]

    def line(self, kind: str, **fields: Any) -> str:
        """Add a line of the tree; return its id."""
        number = next(self._numbers)
        uuid = f"00000000-0000-4000-8000-{number:012}"
        moment = f"2025-11-22T10:{number // 60:02}:{number % 60:02}.000Z"
        about = {"parentUuid": self._parent, "isSidechain": False, "userType": "external"}
        where = {"cwd": "/home/ada/shop", "sessionId": self._session, "version": "2.1.17"}
        named = {"gitBranch": "main", "type": kind, "uuid": uuid, "timestamp": moment}
        self.lines.append({**about, **where, **named, **fields})
        if not fields.get("isSidechain"):
            self._parent = uuid
        return uuid

    def user(self, content: Any, **fields: Any) -> str:
        """Add what a user said, or what stands in a user's place."""
        return self.line("user", message={"role": "user", "content": content}, **fields)

    def assistant(
        self, message_id: str, *blocks: Any, stop: str | None = None, out: int = 1, **fields: Any
    ) -> str:
        """Add a line of an answer; the tokens are those told when it was written."""
        usage = {
            "input_tokens": 4,
            "cache_creation_input_tokens": 100,
            "cache_read_input_tokens": 1_000,
            "output_tokens": out,
            "service_tier": "standard",
        }
        message = {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "model": MODEL,
            "content": list(blocks),
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": usage,
        }
        return self.line("assistant", message=message, requestId=f"req_{message_id}", **fields)

    def result(self, tool_use_id: str, content: Any, **fields: Any) -> str:
        """Add a tool's result."""
        error = {"is_error": True} if fields.pop("is_error", False) else {}
        block = {"type": "tool_result", "tool_use_id": tool_use_id, "content": content, **error}
        return self.user([block], **fields)

    def write(self, path: Path, first: int | None = None) -> Path:
        """Write the first lines, by default all, and give the path."""
        lines = self.lines if first is None else self.lines[:first]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
        return path


def text(said: str) -> dict[str, Any]:
    """Return a block of text."""
    return {"type": "text", "text": said}


def thinking(thought: str) -> dict[str, Any]:
    """Return a block of thinking."""
    return {"type": "thinking", "thinking": thought, "signature": "EqQB"}


def tool_use(tool_use_id: str, name: str, **given: Any) -> dict[str, Any]:
    """Return a block that calls a tool."""
    return {"type": "tool_use", "id": tool_use_id, "name": name, "input": given}


def example() -> Session:
    """Return a session with parallel tools, a summary, a left branch and bookkeeping."""
    session = Session()
    session.bare("permission-mode", permissionMode="default")
    session.bare("file-history-snapshot", messageId="x", snapshot={"trackedFileBackups": {}})
    session.user("<local-command-caveat>Caveat</local-command-caveat>", isMeta=True)
    session.user("Why does the test fail?")
    session.assistant("msg_1", thinking("Look first."), out=2)
    session.assistant("msg_1", text("I look."), out=5)
    first = session.assistant("msg_1", tool_use("toolu_1", "Read", file_path="a.py"), out=30)
    second = tool_use("toolu_2", "Bash", command="pytest")
    session.assistant("msg_1", second, stop="tool_use", out=60)
    session.result("toolu_1", "1\tdef f():", parentUuid=first, toolUseResult={"type": "text"})
    session.result("toolu_2", "Exit code 1\nfailed", is_error=True, toolUseResult="Error: failed")
    session.line("attachment", attachment={"type": "todo_reminder", "content": []})
    answer = session.assistant("msg_2", text("It has no body."), stop="end_turn", out=9)
    session.line("system", subtype="turn_duration", durationMs=4_000, isMeta=False)
    session.bare("ai-title", aiTitle="A failing test")
    session.user("Mend it badly.", parentUuid=answer)
    session.assistant("msg_3", text("Done badly."), stop="end_turn", out=3)
    session.user("Mend it well.", parentUuid=answer)
    session.assistant("msg_4", text("Done well."), stop="end_turn", out=3)
    session.line(
        "system",
        subtype="compact_boundary",
        parentUuid=None,
        content="Conversation compacted",
        compactMetadata={"trigger": "manual", "preTokens": 9_000},
    )
    summary = "This session is being continued from a previous conversation: the test is mended."
    session.user(summary, isCompactSummary=True, isVisibleInTranscriptOnly=True)
    session.user("Thanks. What now?")
    session.assistant("msg_5", text("Commit it."), stop="end_turn", out=4)
    return session


def printed(path: Path) -> Path:
    """Write what the program prints of a run with a subagent, and give the path."""

    def line(kind: str, *blocks: Any, agent: str | None = None) -> dict[str, Any]:
        message = {"id": f"msg_{agent}", "role": kind, "model": MODEL, "content": list(blocks)}
        return {"type": kind, "message": message, "parent_tool_use_id": agent, "uuid": "u"}

    answered = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "found"}
    last = line("assistant", text("Done."))
    last["message"]["id"] = "msg_2"
    lines = [
        {"type": "system", "subtype": "init", "cwd": "/home/ada/shop", "model": MODEL},
        line("assistant", tool_use("toolu_1", "Task", prompt="look")),
        line("assistant", tool_use("toolu_2", "Bash", command="ls")),
        line("assistant", text("I look."), agent="toolu_1"),
        {"type": "rate_limit_event"},
        line("user", answered),
        last,
        {"type": "result", "subtype": "success", "is_error": False, "result": "Done."},
    ]
    told = [{**each, "session_id": SESSION} for each in lines]
    path.write_text("".join(f"{json.dumps(each)}\n" for each in told), "utf-8")
    return path
