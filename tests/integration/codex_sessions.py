"""Lines of Codex's session files, as the versions of 2025 and 2026 write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SESSION = "019dabc6-8fef-7681-a054-b5bb75fcb97d"


class Rollout:
    """A session's file in the making."""

    def __init__(self, session: str = SESSION) -> None:
        self.lines: list[Any] = []
        self._total = dict.fromkeys(
            ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens"), 0
        )
        about = {"id": session, "timestamp": "2026-04-20T16:43:30.171Z", "cwd": "/home/ada/shop"}
        more = {"originator": "codex-tui", "cli_version": "0.118.0", "source": "cli"}
        told = {"base_instructions": {"text": "You are Codex."}, "git": {"branch": "main"}}
        self.line("session_meta", **about, **more, **told)

    def line(self, kind: str, **payload: Any) -> None:
        """Add a line."""
        moment = f"2026-04-20T16:44:{len(self.lines):02}.000Z"
        self.lines.append({"timestamp": moment, "type": kind, "payload": payload})

    def item(self, kind: str, **fields: Any) -> None:
        """Add an item that the model was sent, or gave."""
        self.line("response_item", type=kind, **fields)

    def event(self, kind: str, **fields: Any) -> None:
        """Add what the program showed."""
        self.line("event_msg", type=kind, **fields)

    def message(self, role: str, text: str, **fields: Any) -> None:
        """Add a message."""
        kind = "output_text" if role == "assistant" else "input_text"
        self.item("message", role=role, content=[{"type": kind, "text": text}], **fields)

    def tokens(self, prompt: int, completion: int) -> None:
        """Add what the model call just ended has cost."""
        last = {
            "input_tokens": prompt,
            "cached_input_tokens": prompt // 2,
            "output_tokens": completion,
            "reasoning_output_tokens": completion // 2,
        }
        self._total = {key: self._total[key] + last[key] for key in last}
        info = {"total_token_usage": dict(self._total), "last_token_usage": last}
        self.event("token_count", info=info, rate_limits=None)

    def write(self, path: Path, first: int | None = None) -> Path:
        """Write the first lines, by default all, and give the path."""
        lines = self.lines if first is None else self.lines[:first]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
        return path


def rollout() -> Rollout:
    """Return a session with parallel tools, a patch, a title, a summary and a prompt taken back."""
    found = Rollout()
    found.event("task_started", model_context_window=258_400)
    found.message("developer", "<permissions instructions>read-only")
    found.message("user", "<environment_context>\n  <cwd>/home/ada/shop</cwd>")
    found.line("turn_context", turn_id="t1", cwd="/home/ada/shop", model="gpt-5.4", effort="high")
    found.message("user", "Why does the test fail?")
    found.event("user_message", message="Why does the test fail?", images=[])
    found.event("token_count", info=None, rate_limits={})
    summary = [{"type": "summary_text", "text": "Look first."}]
    found.item("reasoning", summary=summary, content=None, encrypted_content="gAAAA")
    found.message("assistant", "I look.", phase="commentary")
    found.item("function_call", name="exec_command", arguments='{"cmd":"ls"}', call_id="call_1")
    found.item("function_call", name="exec_command", arguments='{"cmd":"x"}', call_id="call_2")
    found.tokens(1_000, 60)
    ran = "Wall time: 0.5000 seconds\nProcess exited with code {}\nOutput:\n"
    found.item("function_call_output", call_id="call_1", output=ran.format(0) + "a.py")
    found.item("function_call_output", call_id="call_2", output=ran.format(127))
    found.item(
        "custom_tool_call",
        name="apply_patch",
        input="*** Begin Patch",
        call_id="call_3",
        status="completed",
    )
    done = {"output": "Success.", "metadata": {"exit_code": 0, "duration_seconds": 0.1}}
    found.item("custom_tool_call_output", call_id="call_3", output=json.dumps(done))
    found.tokens(1_200, 10)
    found.message("assistant", "It has no body.", phase="final")
    found.tokens(1_300, 9)
    found.event("token_count", info=found.lines[-1]["payload"]["info"], rate_limits={})
    found.event("task_complete", last_agent_message="It has no body.")
    found.event("thread_name_updated", thread_name="A failing test")
    found.message("user", "Mend it badly.")
    found.message("assistant", "Done badly.")
    found.tokens(1_400, 3)
    found.event("thread_rolled_back", num_turns=1)
    found.message("user", "Mend it well.")
    found.message("assistant", "Done well.")
    found.tokens(1_400, 3)
    found.line("compacted", message="The test is mended.", replacement_history=None)
    found.message("user", "Thanks. What now?")
    found.message("assistant", "Commit it.")
    found.tokens(400, 4)
    return found
