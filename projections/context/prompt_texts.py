"""The texts of the system part: the product's own, or the defaults.

Products store them in a directory under the names of document 000 (section 4.3), or pass them
directly. A file is read again only if its modification time, size or inode has changed. Line
endings and surrounding whitespace are normalised, so that a checkout on any system gives the same
bytes.
"""

from __future__ import annotations

import errno
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path, PureWindowsPath
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from eventstore.events.values import is_mode
from projections.errors import InvalidPrompt

__all__ = ["BASE_RULES_CHAT", "BASE_RULES_RUN", "TOOL_POLICY", "PromptTexts", "persona_name"]

BASE_RULES_CHAT = "system-base-rules-chat.md"
BASE_RULES_RUN = "system-base-rules-run.md"
TOOL_POLICY = "system-tool-policy.md"
_DEFAULTS = (BASE_RULES_CHAT, BASE_RULES_RUN, TOOL_POLICY)
_PERSONAS = "personas/"
_BASE_RULES = "system-base-rules-"
_NAMES = f"{', '.join(_DEFAULTS)}, {_BASE_RULES}<mode>.md, {_PERSONAS}<agent>.md"

# A parent that is not a directory, or a name too long for any file: such a file cannot exist.
_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)


def persona_name(agent: str) -> str:
    """Return the name of the text with an agent's persona."""
    return f"{_PERSONAS}{agent}.md"


class PromptTexts(BaseModel):
    """Where the texts of the system part come from; a plain path stands for ``directory``.

    A text is looked up in ``texts``, then in ``directory``, then in the defaults; there is no
    default persona. An empty text or file omits its part.

    Attributes:
        directory: The product's directory, with any of ``system-base-rules-<mode>.md``,
            ``system-tool-policy.md`` and ``personas/<agent>.md``.
        texts: Texts by the same names.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    directory: Path | None = None
    texts: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _from_path(cls, value: Any) -> Any:
        return {"directory": value} if isinstance(value, (str, Path)) else value

    @field_validator("texts")
    @classmethod
    def _known(cls, texts: dict[str, str]) -> dict[str, str]:
        for name in texts:
            persona = name.startswith(_PERSONAS) and name.endswith(".md")
            rules = is_mode(name.removeprefix(_BASE_RULES).removesuffix(".md"))
            rules = rules and name.startswith(_BASE_RULES) and name.endswith(".md")
            known = name in _DEFAULTS or rules or (persona and name != persona_name(""))
            if not known:
                raise ValueError(f"no text is named {name!r}: choose from {_NAMES}")
        return {name: _normal(text) for name, text in texts.items()}

    def text(self, name: str) -> str:
        """Return a text by its name; empty if there is none.

        Raises:
            InvalidPrompt: Its file cannot be read or is not UTF-8, its name leads out of the
                directory, or the directory does not exist.
        """
        return self._found(name) or ""

    def _found(self, name: str) -> str | None:
        """Return a text by its name, which may be empty; None if there is none."""
        if name in self.texts:
            return self.texts[name]
        own = None if self.directory is None else _own(self.directory, name)
        if own is None and name in _DEFAULTS:
            return _default(name)
        return own

    def base_rules(self, mode: str) -> str:
        """Return the base rules of a mode, by default those of chat.

        Raises:
            InvalidPrompt: As for ``text``.
        """
        own = self._found(f"{_BASE_RULES}{mode}.md")
        return self.text(BASE_RULES_CHAT) if own is None else own

    def persona(self, agent: str) -> str:
        """Return the persona of an agent; empty if there is none.

        Raises:
            InvalidPrompt: As for ``text``.
        """
        return self.text(persona_name(agent))


def _own(directory: Path, name: str) -> str | None:
    """Return the text of a product's file; None if the file does not exist."""
    path = directory / _inside(name)
    try:
        found = path.stat()
        return _read(path, (found.st_mtime_ns, found.st_size, found.st_ino))
    except OSError as error:
        if error.errno not in _MISSING:
            raise InvalidPrompt(str(path), f"cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InvalidPrompt(str(path), f"is not UTF-8 (byte {error.start})") from error
    if not directory.is_dir():
        raise InvalidPrompt(str(directory), "the directory does not exist")
    return None


def _inside(name: str) -> str:
    """Return a relative name that stays inside the directory, on every system."""
    parts = name.removeprefix(_PERSONAS).removesuffix(".md").split("/")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidPrompt(ascii(name), "cannot be the name of a file") from error
    for part in parts:
        if part in ("", ".", "..") or "\0" in part or PureWindowsPath(part).name != part:
            raise InvalidPrompt(repr(name), "must name a file inside the directory of prompts")
    return name


@lru_cache(maxsize=256)
def _read(path: Path, _state: tuple[int, int, int]) -> str:
    return _normal(path.read_bytes().decode("utf-8-sig"))


@cache
def _default(name: str) -> str:
    return _normal(resources.files(__package__).joinpath("texts", name).read_text("utf-8"))


def _normal(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()
