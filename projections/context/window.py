"""The budget of a request: what was asked for, or the model's window where nobody said."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from eventstore.log import get_logger
from projections.context.options import Asked
from projections.context.settings import ContextSettings
from projections.context.view import ContextView
from projections.tokens.windows import window_of

__all__ = ["Allowed", "budget_of"]

_log = get_logger(__name__)
_LONGEST_NAME = 200  # characters of a name that are told


@dataclass(frozen=True, slots=True)
class Allowed:
    """How many tokens a prompt may have; None for any number, and then why."""

    tokens: int | None
    note: str = ""

    def told(self, view: ContextView) -> ContextView:
        """Return the view, which says so if it has no budget though it was asked to have one."""
        return replace(view, notes=(*view.notes, self.note)) if self.note else view


def budget_of(settings: ContextSettings, asked: Asked) -> Allowed:
    """Return the budget; see `ContextSettings.budget` for what is refused.

    Raises:
        TypeError: The settings are none.
    """
    if not isinstance(settings, ContextSettings):
        told = "ContextSettings.from_mapping makes them of a mapping"
        raise TypeError(f"settings are ContextSettings, not {type(settings).__name__}: {told}")
    most = settings.max_tokens if asked.max_tokens is None else asked.max_tokens
    window = window_of(asked.model, asked.provider) if most == "model" else None
    tokens = settings.budget(asked.max_tokens, asked.reserve_for_response, window=window)
    if most != "model" or tokens is not None:
        return Allowed(tokens)
    if settings.section_budgets:
        return Allowed(None, f"{_unknown(asked.model)}, and section_budgets are of no budget")
    return Allowed(None, _unknown(asked.model))


@lru_cache(maxsize=256)
def _unknown(model: str) -> str:
    """Return what is told of a model without a known window; logged once a process."""
    named = model[:_LONGEST_NAME] or "without a name"
    told = f"no budget: the context window of model {named} is not known, nothing is trimmed"
    _log.warning(told)
    return told
