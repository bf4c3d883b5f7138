"""Make a conversation fit a budget: strategies behind one interface, usable without a store.

``compress`` takes plain messages in OpenAI's chat format. It returns messages that fit, and an
entry for each group that says how much of it is sent:

>>> from projections.context.compression import compress
>>> history = [{"role": "user", "content": "Where is order #W2378156?"}]
>>> history += [{"role": "assistant", "content": "One moment, please. " * 50}]
>>> history += [{"role": "user", "content": "And now?"}]
>>> done = compress(history, max_tokens=100, strategy="window")
>>> [message["content"] for message in done.messages]
['Where is order #W2378156?', 'And now?']
>>> [(entry.level, entry.why) for entry in done.entries][1]
('dropped', 'outside the window, 2 from the end')

A strategy is an ordered list of what loses detail first
(`projections.context.compression.strategy`). Products register their own strategies under the
entry point group ``eventstore.compression``. `projections.context` imports this package, and no
module here imports the rest of `projections.context`.
"""

from projections.context.compression.items import Item, Level, Message, items_of
from projections.context.compression.key_messages import KeyMessages
from projections.context.compression.level_of_detail import LevelOfDetail, NewestGroups
from projections.context.compression.llm_summary import (
    LlmSummary,
    SummaryRequest,
    WrittenSummary,
    summary_due,
)
from projections.context.compression.monitor import ContextUsage, Thresholds, usage_of
from projections.context.compression.pipeline import Compressed, Entry, compress
from projections.context.compression.reduction import Reduced, reduce
from projections.context.compression.retrieval import Hybrid, Retrieval, with_relevance
from projections.context.compression.search import (
    Embed,
    Embedding,
    FusedSearch,
    MemorySearch,
    Search,
    VectorSearch,
)
from projections.context.compression.strategy import Reduction, Strategy, strategies, strategy_of

__all__ = [
    "Compressed",
    "ContextUsage",
    "Embed",
    "Embedding",
    "Entry",
    "FusedSearch",
    "Hybrid",
    "Item",
    "KeyMessages",
    "Level",
    "LevelOfDetail",
    "LlmSummary",
    "MemorySearch",
    "Message",
    "NewestGroups",
    "Reduced",
    "Reduction",
    "Retrieval",
    "Search",
    "Strategy",
    "SummaryRequest",
    "Thresholds",
    "VectorSearch",
    "WrittenSummary",
    "compress",
    "items_of",
    "reduce",
    "strategies",
    "strategy_of",
    "summary_due",
    "usage_of",
    "with_relevance",
]
