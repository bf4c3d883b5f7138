"""The AI SDK: recorded turns as its streams, and its messages as turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventstore.lazy import exports

if TYPE_CHECKING:
    from agent_eventstore.integrations.ai_sdk.message_stream import (
        HEADERS,
        UIMessageStream,
        astream_turn,
        stream_turn,
    )
    from agent_eventstore.transcripts.ui_messages import export_ui_messages

__all__ = ["HEADERS", "UIMessageStream", "astream_turn", "export_ui_messages", "stream_turn"]


__getattr__ = exports(
    __name__,
    {
        "HEADERS": f"{__name__}.message_stream",
        "UIMessageStream": f"{__name__}.message_stream",
        "astream_turn": f"{__name__}.message_stream",
        "export_ui_messages": f"{__name__}.ui_messages",
        "stream_turn": f"{__name__}.message_stream",
    },
)
