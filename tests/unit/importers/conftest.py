"""Files to import, written by the test that needs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file: text as it is, anything else as JSON, and give its path."""

    def _write(content: Any, name: str = "file") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
        return path

    return _write


@pytest.fixture
def write_lines(write: Write) -> Write:
    """Write JSON Lines: text lines as they are, anything else as JSON, and give the path."""

    def _write(*lines: Any, name: str = "file") -> Path:
        texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
        return write("".join(f"{text}\n" for text in texts), name)

    return _write
