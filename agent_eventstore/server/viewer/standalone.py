"""A conversation as one HTML file, to send to somebody who has no access to the store.

The file holds everything that it shows: no script, and nothing that a browser would load from
elsewhere, which its own content security policy also refuses. Texts are whole; markdown is rendered
as in the viewer, and what is longer than the viewer shows stands as plain text.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from uuid import UUID

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from agent_eventstore.artifacts import read_alias
from agent_eventstore.errors import UnknownAlias
from agent_eventstore.server.viewer import figures, rich_text
from eventstore import EventStore
from eventstore.errors import BlobNotFound
from eventstore.events import UserMessage
from eventstore.events.values import ImagePart
from projections import Views
from projections.models.timeline_items import TimelineItem

__all__ = ["conversation_html"]

_PACKAGE = "agent_eventstore.server.viewer"
_WELL = ("complete", "ok", "success", "running", None)


@dataclass(frozen=True, slots=True)
class _Paragraph:
    """An item, and the texts of it that the file shows."""

    item: TimelineItem
    who: str
    body: Markup | str = ""
    arguments: Markup | str = ""
    images: tuple[str, ...] = ()
    is_plain: bool = False

    @property
    def trouble(self) -> str:
        """The status in words, unless all is well."""
        status = self.item.status
        return "" if status in _WELL else str(status).replace("_", " ")


def conversation_html(store: EventStore, conversation_id: UUID) -> str:
    """Return the active branch of a conversation as a self-contained page.

    Raises:
        ConversationNotFound: No conversation has this id.
    """
    views = Views(store)
    info = store.get(conversation_id)
    [entry] = views.rows("directory", conversation_id=conversation_id) or [{}]
    environment = Environment(
        loader=PackageLoader(_PACKAGE, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: rich_text.visible(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        duration=figures.duration, moment=figures.moment, first_line=rich_text.first_line
    )
    style = (files(_PACKAGE) / "static" / "standalone.css").read_text("utf-8")
    return environment.get_template("standalone.html").render(
        info=info,
        title=entry.get("title") or "(untitled)",
        style=Markup(style),  # noqa: S704  # nosec B704 - a file of this package
        rows=list(_paragraphs(store, views, conversation_id, info.user_id)),
    )


def _paragraphs(
    store: EventStore, views: Views, conversation_id: UUID, user: str | None
) -> Iterator[_Paragraph]:
    for item in views.timeline(conversation_id):
        text = _whole(store, views, conversation_id, item)
        is_plain = len(text) > rich_text.LONGEST
        match item.kind:
            case "user":
                images = _images(store, conversation_id, item)
                who = item.name or user or "user"
                yield _Paragraph(item, who, _prose(text), images=images, is_plain=is_plain)
            case "assistant" | "reasoning":
                who = item.name or item.agent_id or "model"
                yield _Paragraph(item, who, _prose(text), is_plain=is_plain)
            case "tool":
                given = rich_text.json_code(item.arguments or {}, 1 << 62)
                yield _Paragraph(item, item.name or "tool", _code(text), given, is_plain=True)
            case kind:
                shown = text or item.title or ""
                yield _Paragraph(item, kind or "unknown", shown, is_plain=True)


def _whole(store: EventStore, views: Views, conversation_id: UUID, item: TimelineItem) -> str:
    """Return an item's whole text; of one in a blob that is gone, the start that the row has."""
    if item.alias:
        with suppress(UnknownAlias, BlobNotFound):
            return read_alias(store, views, conversation_id, item.alias) or item.text or ""
    return item.text or ""


def _prose(text: str) -> Markup | str:
    return rich_text.prose(text) if len(text) <= rich_text.LONGEST else text


def _code(text: str) -> Markup | str:
    return rich_text.json_code(text) if len(text) <= rich_text.LONGEST else text


def _images(store: EventStore, conversation_id: UUID, item: TimelineItem) -> tuple[str, ...]:
    """Return the images whose data are in a message; others would be loaded from elsewhere."""
    if "[image]" not in (item.text or ""):
        return ()
    version = item.message_version or item.version
    found = [
        part.url
        for event in store.read(conversation_id, after=version - 1, limit=1)
        if isinstance(event.data, UserMessage)
        for part in event.data.parts
        if isinstance(part, ImagePart)
    ]
    return tuple(url for url in found if rich_text.data_image(url))
