"""Whose a reasoning item is, by the item itself, whichever path it came by.

A maker refuses the items of others, and some refuse a request without their own. A client that a
product wraps, an import and a framework's history store the same items, and only the first also
stores which API was called. So the owner is derived here, from the form of the item:

| item | owner | goes back in |
|---|---|---|
| thinking with ``signature``, ``redacted_thinking`` | Anthropic | blocks of Messages |
| item ``reasoning`` with ``encrypted_content`` | OpenAI | items of Responses |
| ``thoughtSignature``, ``extra_content`` of a call or message | Google | ``extra_content`` |
| ``reasoning_details`` of a message | OpenRouter, or the server that sent it | the same field |
| ``thinking_blocks`` of a message | LiteLLM, and Anthropic | the same field; blocks |
| ``provider_specific_fields`` of a call | LiteLLM, and Google | the same field; ``extra_content`` |

A signature without a form of its own belongs to the model that the message names; without any name,
to Anthropic, whose form it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eventstore.events import AssistantMessage, Invocation, ReasoningPart

__all__ = [
    "ANTHROPIC",
    "GOOGLE",
    "OPENAI",
    "chat_fields",
    "metadata_of",
    "owner_of",
    "signature_in",
    "thinking_blocks",
    "thought_of",
]

Json = dict[str, Any]

ANTHROPIC, OPENAI, GOOGLE = "anthropic", "openai", "google"

_OF_SPECIFICATION = {
    "anthropic_messages": ANTHROPIC,
    "bedrock_converse": ANTHROPIC,
    "openai_responses": OPENAI,
    "gemini_generate_content": GOOGLE,
    "gemini_interactions": GOOGLE,
}
_OF_PROVIDER = {
    **dict.fromkeys(("anthropic", "bedrock", "amazon-bedrock", "amazon_bedrock", "aws"), ANTHROPIC),
    **dict.fromkeys(("google", "gemini", "google-gla", "google-genai", "google_genai"), GOOGLE),
    **dict.fromkeys(("openai", "azure", "azure-openai", "azure_openai"), OPENAI),
}
_OF_MODEL = (("claude", ANTHROPIC), ("gemini", GOOGLE), ("gpt", OPENAI))
_SIGNATURES = ("thoughtSignature", "thought_signature")
_DETAILS, _BLOCKS, _FIELDS = "reasoning_details", "thinking_blocks", "provider_specific_fields"
_ROUTER, _PROXY = "openrouter", "litellm"
_MESSAGES = ("message", "openai_message")


def owner_of(part: ReasoningPart, made: Invocation) -> str | None:
    """Return the maker that a thought's signature or encrypted content belongs to, or None."""
    raw = part.raw or {}
    kind = raw.get("type")
    if kind in ("thinking", "redacted_thinking") or "reasoningContent" in raw:
        return made.provider if _is_of(made, "anthropic_messages") else ANTHROPIC
    if kind == "reasoning":
        return made.provider if _is_of(made, "openai_responses") else OPENAI
    if any(key in raw for key in _SIGNATURES):
        return GOOGLE
    return _named(made) if part.signature else None


def _is_of(made: Invocation, specification: str) -> bool:
    return made.specification == specification and made.provider is not None


def _named(made: Invocation) -> str | None:
    """Return the maker of a bare signature, by the names in the message."""
    if made.specification is not None:
        found = _OF_SPECIFICATION.get(made.specification)
        same = found is not None and _is_of(made, made.specification)
        return made.provider if same and made.specification == "anthropic_messages" else found
    model = (made.model or "").lower()
    for word, maker in _OF_MODEL:
        if word in model:
            return maker
    return ANTHROPIC if made.provider is None else _OF_PROVIDER.get(made.provider.lower())


def thought_of(block: Mapping[str, Any]) -> ReasoningPart | None:
    """Return a reasoning item of any maker's form as a part that keeps whose it is, or None."""
    match block:
        case {"type": "thinking", "thinking": str(text), "signature": str(signature)}:
            marked = {"type": "thinking"} if signature else None
            return ReasoningPart(text=text, signature=signature or None, raw=marked)
        case {"type": "redacted_thinking", "data": str()}:
            return ReasoningPart(text="", raw=dict(block))
        case {"type": "reasoning", "encrypted_content": str(sealed)} if sealed:
            return ReasoningPart(text=_summary(block), signature=sealed, raw=_native_item(block))
        case {"type": "reasoning_content", "reasoning_content": {"text": str(text), **rest}}:
            found = rest.get("signature")  # as LangChain has Bedrock's
            sign = found if isinstance(found, str) and found else None
            raw = {"type": "thinking"} if sign else None
            return ReasoningPart(text=text, signature=sign, raw=raw)
        case {"type": "reasoning", "reasoning": str(text), "extras": {"signature": str(signed)}}:
            return ReasoningPart(text=text, signature=signed)  # as LangChain's standard blocks are
    return None


def _summary(item: Mapping[str, Any]) -> str:
    lists = (item.get(key) for key in ("summary", "content"))
    texts = [block.get("text") for each in lists if isinstance(each, list) for block in each]
    return "\n".join(text for text in texts if isinstance(text, str))


def _native_item(item: Mapping[str, Any]) -> Json:
    return {"type": "reasoning", "summary": [], **{k: v for k, v in item.items() if v is not None}}


def metadata_of(metadata: Any, text: str) -> ReasoningPart | None:
    """Return the reasoning that the AI SDK's ``providerMetadata`` describes, or None.

    OpenCode stores the same under ``metadata``.
    """
    match metadata:
        case {"anthropic": {"signature": str(signature)}} if signature:
            return ReasoningPart(text=text, signature=signature, raw={"type": "thinking"})
        case {"anthropic": {"redactedData": str(data)}} if data:
            return ReasoningPart(text=text, raw={"type": "redacted_thinking", "data": data})
        case {"bedrock": {"signature": str(signature)}} if signature:
            return ReasoningPart(text=text, signature=signature, raw={"type": "thinking"})
        case {"bedrock": {"redactedData": str(data)}} if data:
            return ReasoningPart(text=text, raw={"type": "redacted_thinking", "data": data})
        case {"openai": {"reasoningEncryptedContent": str(sealed), **rest}} | {
            "azure": {"reasoningEncryptedContent": str(sealed), **rest}
        } if sealed:
            summary = [{"type": "summary_text", "text": text}] if text else []
            named = {"id": rest["itemId"]} if isinstance(rest.get("itemId"), str) else {}
            raw = {"type": "reasoning", **named, "summary": summary, "encrypted_content": sealed}
            return ReasoningPart(text=text, signature=sealed, raw=raw)
        case {"google": {"thoughtSignature": str(signature)}} | {
            "vertex": {"thoughtSignature": str(signature)}
        } if signature:
            raw = {"thoughtSignature": signature}
            return ReasoningPart(text=text, signature=signature, raw=raw)
        case {"openrouter": {"reasoning_details": list(details)}} if details:
            return ReasoningPart(text=text, raw={_DETAILS: details})
    return None


def signature_in(raw: Any) -> str | None:
    """Return Gemini's signature in the raw form of a call or message, or None."""
    fields = raw if isinstance(raw, dict) else {}
    places = [fields, fields.get("google"), fields.get("vertex"), fields.get(_FIELDS)]
    for key in ("extra_content", "providerMetadata", "callProviderMetadata"):
        if isinstance(extra := fields.get(key), dict):
            places += extra.values()
    for place in places:
        if isinstance(place, dict):
            for key in _SIGNATURES:
                if isinstance(signature := place.get(key), str) and signature:
                    return signature
    return None


def _messages(payload: AssistantMessage) -> Iterator[Mapping[str, Any]]:
    """Yield the objects in which a message keeps the fields of its maker."""
    raw = payload.raw if isinstance(payload.raw, dict) else {}
    for key in _MESSAGES:
        if isinstance(found := raw.get(key), dict):
            yield found
    for part in payload.parts:
        if isinstance(part, ReasoningPart) and part.raw is not None:
            yield part.raw


def thinking_blocks(payload: AssistantMessage) -> list[Json]:
    """Return the ``thinking_blocks`` of a message, pieces of a stream joined."""
    for native in _messages(payload):
        if isinstance(blocks := native.get(_BLOCKS), list):
            return _joined([block for block in blocks if isinstance(block, dict)])
    return []


def _joined(blocks: Sequence[Json]) -> list[Json]:
    """Return blocks, those of a stream's pieces as one: only the last piece is signed."""
    found: list[Json] = []
    grows = False
    for block in blocks:
        if grows and block.get("type") == found[-1].get("type") == "thinking":
            text = f"{found[-1].get('thinking') or ''}{block.get('thinking') or ''}"
            found[-1] = {**found[-1], **block, "thinking": text}
        else:
            found.append(block)
        grows = found[-1].get("type") == "thinking" and not found[-1].get("signature")
    return found


def chat_fields(payload: AssistantMessage) -> list[Json]:
    """Return the fields of chat messages that only their own server takes back.

    Each entry has ``to`` (the servers), ``fields``, and ``call``, the index of the call that has
    the fields, unless the message has them.
    """
    made = payload.invocation or Invocation()
    own = [made.provider] if made.specification == "openai_chat" and made.provider else []
    found: list[Json] = []
    for native in _messages(payload):
        if isinstance(details := native.get(_DETAILS), list) and details:
            found.append({"to": own or [_ROUTER], "fields": {_DETAILS: details}})
            break
    if blocks := thinking_blocks(payload):
        found.append({"to": sorted({_PROXY, *own}), "fields": {_BLOCKS: blocks}})
    for index, call in enumerate(payload.tool_calls):
        fields = (call.raw or {}).get(_FIELDS)
        if isinstance(fields, dict) and fields:
            to = sorted({_PROXY, *own})
            found.append({"to": to, "call": index, "fields": {_FIELDS: fields}})
    return found
