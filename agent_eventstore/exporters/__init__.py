"""Conversations to foreign formats: OpenAI messages, session JSONL, and projects."""

from .openai_messages import export_openai
from .project import ProjectReport, export_project
from .project_messages import export_messages_json, export_messages_jsonl
from .session_jsonl import export_session_jsonl

__all__ = [
    "FORMATS",
    "ProjectReport",
    "export_messages_json",
    "export_messages_jsonl",
    "export_openai",
    "export_project",
    "export_session_jsonl",
]

FORMATS = ("openai", "session-jsonl", "messages-json", "messages-jsonl", "project")
"""The names of the formats that can be written; a ``project`` is a directory."""
