"""Provider streams to deltas and messages, and provider exceptions to kinds of failure.

::

    parser = parser_for(first_chunk)
    for chunk in chunks:
        delta = parser.feed(chunk)          # what this chunk added; false if nothing
    parser.message(llm_call_id="call-1")    # the same, put together: an AssistantMessage

Eight specifications are known: OpenAI's chat completions (with the many servers that speak the
same) and Responses, Anthropic's Messages, Gemini's generateContent and Interactions, Ollama's chat,
Bedrock's Converse and Cohere's chat; also where Bedrock's InvokeModel wraps their chunks. What
comes from elsewhere is told by hand. Everything here is pure: no I/O, no SDK.
"""

from agent_eventstore.providers.base import Delta, Partial, StreamError, StreamParser
from agent_eventstore.providers.detect import parser_for, read_response, says_nothing
from agent_eventstore.providers.failures import Failure, classify
from agent_eventstore.providers.parser import ByHand

__all__ = [
    "ByHand",
    "Delta",
    "Failure",
    "Partial",
    "StreamError",
    "StreamParser",
    "classify",
    "parser_for",
    "read_response",
    "says_nothing",
]
