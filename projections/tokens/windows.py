"""The context window of a model, by the data that `genai_prices` carries along."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING

from projections.tokens.text import names_of

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot

__all__ = ["window_of"]


@lru_cache(maxsize=256)
def window_of(model: str, provider: str | None = None) -> int | None:
    """Return how many tokens a call of a model may have, prompt and response; None if unknown.

    Args:
        model: Also with its seller or a router in front (``openai/gpt-4o``, ``bedrock/...``), in
            capitals, or with a date.
        provider: Who will be asked, by the name that the list has for them.
    """
    names = names_of(model)
    sellers = dict.fromkeys((provider, None))
    asked = [(name, seller) for name in names for seller in sellers]
    # As routers write it: of whom, and then what that seller calls the model.
    first, _, rest = model.strip().lower().partition("/")
    asked += [(name, first) for name in (rest, *names) if rest]
    for name, seller in asked:
        try:
            _, found = _listed().find_provider_model(name, None, seller, None)
        except LookupError:
            continue
        if found.context_window:
            return int(found.context_window)
    return None


@cache
def _listed() -> DataSnapshot:
    # Not the package's current snapshot: a program may have set one that updates itself.
    from genai_prices.data import providers  # takes a while
    from genai_prices.data_snapshot import DataSnapshot

    return DataSnapshot(providers=providers, from_auto_update=False)
