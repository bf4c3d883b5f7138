"""The budget of a request: the requested one, or by default the model's window.

The sizes of models' windows are from the data bundled with `genai_prices`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from eventstore.log import get_logger
from projections.context.options import Asked
from projections.context.settings import ContextSettings
from projections.context.view import ContextView
from projections.tokens.text import listed_models, names_of

__all__ = ["Allowed", "budget_of", "window_of"]


@lru_cache(maxsize=256)
def window_of(model: str, provider: str | None = None) -> int | None:
    """Return the most tokens of a model's call, prompt and response; None if unknown.

    Args:
        model: May have its seller or a router in front (``openai/gpt-4o``, ``bedrock/...``),
            capitals, or a date.
        provider: The provider that will be called, by its name in the list.
    """
    names = names_of(model)
    sellers = dict.fromkeys((provider, None))
    asked = [(name, seller) for name in names for seller in sellers]
    # A router's form: the seller, and then the seller's name of the model.
    first, _, rest = model.strip().lower().partition("/")
    asked += [(name, first) for name in (rest, *names) if rest]
    for name, seller in asked:
        try:
            _, found = listed_models().find_provider_model(name, None, seller, None)
        except LookupError:
            continue
        if found.context_window:
            return int(found.context_window)
    return None


_log = get_logger(__name__)
_LONGEST_NAME = 200  # characters of a name that are shown


@dataclass(frozen=True, slots=True)
class Allowed:
    """The most tokens of a prompt; None for no limit, with the reason in ``note``."""

    tokens: int | None
    note: str = ""

    def told(self, view: ContextView) -> ContextView:
        """Return the view, with a note if a budget was requested but does not exist."""
        return replace(view, notes=(*view.notes, self.note)) if self.note else view


def budget_of(settings: ContextSettings, asked: Asked) -> Allowed:
    """Return the budget; `ContextSettings.budget` documents the errors."""
    most = settings.max_tokens if asked.max_tokens is None else asked.max_tokens
    window = window_of(asked.model, asked.provider) if most == "model" else None
    tokens = settings.budget(asked.max_tokens, asked.reserve_for_response, window=window)
    if most != "model" or tokens is not None:
        return Allowed(tokens)
    if settings.section_budgets:
        return Allowed(None, f"{_unknown(asked.model)}, and section_budgets have no effect")
    return Allowed(None, _unknown(asked.model))


@lru_cache(maxsize=256)
def _unknown(model: str) -> str:
    """Return the note about a model without a known window; logged once per process."""
    named = model[:_LONGEST_NAME] or "without a name"
    told = f"no budget: the context window of model {named} is unknown, so nothing is trimmed"
    _log.warning(told)
    return told
