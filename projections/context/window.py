"""The budget of a request: the requested limit, or the model's window by default.

The sizes of windows come from the data in the package `genai_prices`.
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


_TUNED = "ft:"  # OpenAI's names of fine-tuned models: ft:<base model>:<organisation>:...
_CLOUD = "aws"  # whose names, such as us.anthropic.claude-..., no other seller lists
_ROUTER = "openrouter"  # lists the windows of most models, as <seller>/<model>


@lru_cache(maxsize=256)
def window_of(model: str, provider: str | None = None) -> int | None:
    """Return a model's context window, for prompt and response, in tokens; None if unknown.

    Args:
        model: The model's name; a seller or router in front (``openai/gpt-4o``, ``bedrock/...``),
            capitals and a date are accepted. A fine-tuned model has the window of its base.
        provider: The provider that will be called, by its name in the list.
    """
    names = names_of(model)
    names += [name.split(":")[1] for name in names if name.startswith(_TUNED)]
    asked = [(name, seller) for name in names for seller in dict.fromkeys((provider, None))]
    # As routers write it: the seller, then the seller's name for the model.
    first, _, rest = model.strip().lower().partition("/")
    asked += [(name, first) for name in (rest, *names) if rest]
    asked += [(name, _CLOUD) for name in names]
    for name, seller in asked:
        try:
            made_by, found = listed_models().find_provider_model(name, None, seller, None)
        except LookupError:
            continue
        if found.context_window:
            return int(found.context_window)
        if seller != _ROUTER:
            asked.append((f"{made_by.id}/{name}", _ROUTER))
    return None


_log = get_logger(__name__)
_LONGEST_NAME = 200  # characters of a name in a message


@dataclass(frozen=True, slots=True)
class Allowed:
    """How many tokens a prompt may have; None for any number, with the reason in ``note``."""

    tokens: int | None
    note: str = ""

    def told(self, view: ContextView) -> ContextView:
        """Return the view, with the note added to its ``notes`` if there is one."""
        return replace(view, notes=(*view.notes, self.note)) if self.note else view


def budget_of(settings: ContextSettings, asked: Asked) -> Allowed:
    """Return the budget of a request, and check its other numbers and the model's name.

    Raises:
        TypeError: A number is not an integer, or the model or provider is not a string.
        ValueError: A number is out of range; see `ContextSettings.budget`.
    """
    for name, limit in (("max_messages", asked.max_messages), ("at", asked.at)):
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool)):
            raise TypeError(f"{name} must be an integer, not {limit!r}")
    for name, given in (("model", asked.model), ("provider", asked.provider or "")):
        if not isinstance(given, str):
            raise TypeError(f"{name} must be a string, not {given!r}")
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
    """Return the note about a model whose window is unknown, and log it once per process."""
    named = model[:_LONGEST_NAME] or "without a name"
    told = f"no budget: the context window of model {named} is not known, nothing is trimmed"
    _log.warning(told)
    return told
