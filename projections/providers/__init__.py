"""Parsers of provider streams, and classification of provider exceptions.

::

    parser = parser_for(first_chunk)
    for chunk in chunks:
        delta = parser.feed(chunk)          # what this chunk added; false if nothing
    parser.message(llm_call_id="call-1")    # all of it: an AssistantMessage

Supported are OpenAI's chat completions (also of the many compatible servers) and Responses,
Anthropic's Messages, Gemini's generateContent and Interactions, Ollama's chat, Cohere's chat, and
Bedrock's Converse and InvokeModel (which wraps other providers' chunks). For any other provider,
`ByHand` takes the answer as text and tool calls. Everything here is pure: no I/O, no SDK.
"""

from projections.providers.detect import parser_for, read_response, says_nothing
from projections.providers.failures import Failure, StreamFailed, classify
from projections.providers.parser import ByHand
from projections.providers.stream_base import Delta, Partial, StreamError, StreamParser

__all__ = [
    "ByHand",
    "Delta",
    "Failure",
    "Partial",
    "StreamError",
    "StreamFailed",
    "StreamParser",
    "classify",
    "parser_for",
    "read_response",
    "says_nothing",
]
