"""The settings of a messages[] view, from documents 000 (section 7) and 001.

Every setting may be given by its name here or by its name in a document. By default the model's
window is the limit; ``ContextSettings.proposed()`` has document 000's limits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal, Self, TypedDict

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    ValidationError,
    field_validator,
    model_validator,
)

from eventstore.arguments import meant
from eventstore.events import ToolPolicy
from eventstore.owners import Owned
from eventstore.telemetry.log import get_logger
from projections.context.compression.monitor import Thresholds
from projections.context.compression.strategy import Strategy, strategy_of
from projections.context.edits import KINDS
from projections.context.prompts import PromptTexts
from projections.context.section_budgets import require_known
from projections.context.state import RequestMode
from projections.context.view import ContextView
from projections.errors import InvalidSettings
from projections.tokens import require_tokenizer
from projections.tokens.text import listed_models, names_of

__all__ = [
    "DEFAULTS",
    "Allowed",
    "ContextOptions",
    "ContextRequest",
    "ContextRequestOptions",
    "ContextSettings",
    "budget_of",
    "settings_of",
    "strategy_for",
    "window_of",
]


_MOST_RESERVED = 16_384  # tokens of a model's window, unless the caller sets a number


# Strict: in a settings file, "80" and true are mistakes.
_Limit = Annotated[int, Field(strict=True, ge=1)]


_Name = Annotated[str, Field(min_length=1)]


_DOCUMENT_NAMES = {
    "totalBudget": "max_tokens",  # 000, CompressionConfig
    "reservedForResponse": "reserve_for_response",
    "targetAfterCompression": "target",
    "contextMaxMessages": "max_messages",  # 000, section 7
    "contextMaxChars": "max_chars",
    "includeToolResultsInContext": "include_tool_results",
    "includeCollapsedUiEventsInContext": "include_collapsed_ui_events",
    "maxPromptTokens": "max_prompt_tokens",  # 001
    "warnPromptTokens": "warn_prompt_tokens",
    "tokenizerModel": "tokenizer",
    "tokenizer_model": "tokenizer",
    "maxTokens": "max_tokens",
    "reserveForResponse": "reserve_for_response",
}


_LESS_THAN = (
    ("warn_prompt_tokens", "max_prompt_tokens"),
    ("reserve_for_response", "max_tokens"),
)


_SECTIONS = ("settings", "llm")  # document 000 writes settings.llm.contextMaxMessages


class ContextSettings(BaseModel):
    """Limits and choices for the messages[] view; immutable.

    Attributes:
        max_tokens: Tokens of a whole call, prompt and response (``totalBudget``); ``model``: the
            model's window, if it is known; None: no limit.
        reserve_for_response: How many of ``max_tokens`` are kept free for the response; 0 with the
            model's window means an eighth of it, at most 16,384.
        max_prompt_tokens: Upper limit for the prompt's tokens alone; no reserve is deducted.
        warn_prompt_tokens: From how many tokens on the status is ``warning``.
        max_messages: Upper limit for the number of messages, including the system part.
        max_chars: Upper limit for the characters, as a fallback if tokens are not limited.
        include_tool_results: Whether the contents of tool results are sent.
        include_failed_turns: Whether turns are sent whose last message is a failed model call.
        tool_tables: Whether JSON results are sent as compact tables if these lose nothing.
        include_collapsed_ui_events: Whether messages that only the UI shows are sent.
        system_notes: Whether ``openai_chat`` has no system message except the first, and later ones
            become notes in the user's messages; for chat templates that reject other system
            messages.
        count_margin: The share by which a count may be too low, which is kept free of the budget;
            None: the model's margin, which is 0.0 if its encoding is bundled.
        tokenizer: The encoding or model to count with; None: that of the request's model.
        steps: Whether the history is trimmed in steps, so that the prefix stays the same.
        target: The share of the budget, below 1, to which a step trims at least.
        cache_breakpoints: Whether Anthropic's requests have breakpoints for the prompt cache: after
            the tools, the system part, the part that the last step left unchanged, and the history.
        prompt_cache_key: The key by which OpenAI's formats route requests with the same prefix to
            the same cache.
        context_management: Edits that providers are asked to make to a prompt, as entries in their
            own format: OpenAI's ``compaction``, Anthropic's edits. Each provider gets its own.
        section_budgets: The most tokens of a section, or its share of the prompt's budget, by
            name; see `SECTIONS`.
        strategy: The name of the compression strategy.
        strategy_options: The options of that strategy.
        prompts: The product's texts for the system part; a path means their directory.

    Raises:
        ValidationError: A value is out of range or contradicts another, a name is unknown or given
            twice (pydantic's, also ValueError).
        EncodingNotBundled: The tokenizer is not bundled.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    max_tokens: _Limit | Literal["model"] | None = "model"
    reserve_for_response: Annotated[int, Field(strict=True, ge=0)] = 0
    max_prompt_tokens: _Limit | None = None
    warn_prompt_tokens: _Limit | None = None
    max_messages: _Limit | None = None
    max_chars: _Limit | None = None
    include_tool_results: StrictBool = True
    include_failed_turns: StrictBool = True
    tool_tables: StrictBool = True
    include_collapsed_ui_events: StrictBool = False
    system_notes: StrictBool = False
    count_margin: Annotated[float, Field(ge=0, le=4)] | None = None
    tokenizer: _Name | None = None
    steps: StrictBool = True
    target: Annotated[float, Field(strict=True, gt=0, lt=1)] = 0.65
    cache_breakpoints: StrictBool = False
    prompt_cache_key: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    context_management: Annotated[tuple[dict[str, Any], ...], Field(max_length=16)] = ()
    section_budgets: dict[str, int | float] = Field(default_factory=dict)
    strategy: _Name = "hybrid"
    strategy_options: dict[str, Any] = Field(default_factory=dict)
    prompts: PromptTexts = Field(default_factory=PromptTexts)

    @classmethod
    def proposed(cls) -> Self:
        """Return the defaults that document 000 proposes: 80 messages, 120,000 characters."""
        return cls(max_messages=80, max_chars=120_000)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Return settings from a product's configuration.

        Names of the documents are accepted too: alone (``contextMaxMessages``), dotted
        (``llm.contextMaxMessages``) or nested in sections ``settings`` and ``llm``.

        Raises:
            InvalidSettings: A setting is unknown, out of range, contradictory, or given twice.
            EncodingNotBundled: The tokenizer is not bundled.
        """
        try:
            return cls.model_validate(_flat(mapping))
        except ValidationError as error:
            raise InvalidSettings(_problems(error)) from error
        except _Named as error:
            raise InvalidSettings((str(error),)) from error

    def with_(self, **changes: Any) -> Self:
        """Return a copy with changed settings, all of them validated again.

        Raises:
            InvalidSettings: A change is unknown, out of range, or contradicts another setting.
            EncodingNotBundled: The tokenizer is not bundled.
        """
        try:
            own = {name: getattr(self, name) for name in self.model_fields_set}
            return type(self).model_validate(own | _by_own_names(changes))
        except ValidationError as error:
            raise InvalidSettings(_problems(error)) from error
        except _Named as error:
            raise InvalidSettings((str(error),)) from error

    @cached_property
    def recorded(self) -> dict[str, Any]:
        """The settings that a request records: all non-defaults except texts and strategy."""
        excluded = {"prompts", "strategy", "strategy_options"}
        return self.model_dump(mode="json", exclude_defaults=True, exclude=excluded)

    @cached_property
    def thresholds(self) -> Thresholds:
        """When the history is trimmed, and to which ``target``."""
        return Thresholds(target=self.target)

    def budget(
        self,
        max_tokens: int | Literal["model"] | None = None,
        reserve: int | None = None,
        *,
        window: int | None = None,
    ) -> int | None:
        """Return how many tokens a prompt may have, or None for any number.

        The reserve for the response is deducted from ``max_tokens``; ``max_prompt_tokens`` limits
        the remainder.

        Args:
            max_tokens: Tokens of the whole call; None: the setting.
            reserve: Tokens for the response; None: the setting.
            window: The model's window; None if it is unknown.

        Raises:
            ValueError: A number is negative, or the reserve leaves nothing for the prompt.
            TypeError: A number is not an integer.
        """
        total = self.max_tokens if max_tokens is None else max_tokens
        reserve = self.reserve_for_response if reserve is None else reserve
        if total == "model":
            total = window
            reserve = reserve or (0 if total is None else min(total // 8, _MOST_RESERVED))
        for name, value in (("max_tokens", total), ("reserve_for_response", reserve)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
                raise TypeError(f"{name} must be an integer, not {value!r}")
            if value is not None and value < 0:
                raise ValueError(f"{name} must not be negative: {value}")
        if total and reserve >= total:
            raise ValueError(
                f"reserve_for_response ({reserve}) leaves nothing of max_tokens ({total}) "
                "for the prompt"
            )
        limits = [] if total is None else [max(total - reserve, 0)]
        if self.max_prompt_tokens is not None:
            limits.append(self.max_prompt_tokens)
        return min(limits, default=None)

    @model_validator(mode="before")
    @classmethod
    def _names(cls, values: Any) -> Any:
        return _by_own_names(values) if isinstance(values, Mapping) else values

    @field_validator("context_management")
    @classmethod
    def _known_entries(cls, entries: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        for each in entries:
            if each.get("type") not in KINDS:
                raise ValueError(
                    f"unknown type {each.get('type')!r}: choose from {', '.join(KINDS)}"
                )
        return entries

    @field_validator("section_budgets", mode="before")
    @classmethod
    def _known_sections(cls, given: Any) -> Any:
        return require_known(given)

    @field_validator("tokenizer")
    @classmethod
    def _bundled(cls, tokenizer: str | None) -> str | None:
        if tokenizer is not None:
            require_tokenizer(tokenizer)
        return tokenizer

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for low_name, high_name in _LESS_THAN:
            low, high = getattr(self, low_name), getattr(self, high_name)
            if isinstance(low, int | float) and isinstance(high, int | float) and low >= high:
                raise ValueError(f"{low_name} ({low}) must be less than {high_name} ({high})")
        if self.section_budgets and self.max_tokens is self.max_prompt_tokens is None:
            raise ValueError("section_budgets need a limit: set max_tokens")
        return self


class _Named(ValueError):
    """A setting's name is unknown or given twice; raised before any value is validated."""


def _by_own_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by their own names; refuse unknown and repeated ones."""
    own: dict[str, Any] = {}
    known = (*ContextSettings.model_fields, *_DOCUMENT_NAMES)
    for given, value in values.items():
        name = _DOCUMENT_NAMES.get(given, given)
        if name not in ContextSettings.model_fields:
            raise _Named(f"unknown setting {given!r}: {meant(str(given), known)}")
        if name in own:
            raise _Named(f"{name} is given twice, once as {given!r}")
        own[name] = value
    return own


def _flat(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping with the sections of document 000 flattened."""
    flat: dict[str, Any] = {}
    for name, value in mapping.items():
        section, _, rest = str(name).partition(".")
        if section in _SECTIONS and (rest or isinstance(value, Mapping)):
            inner = _flat({rest: value} if rest else value)
        else:
            inner = {name: value}
        if twice := flat.keys() & inner.keys():
            raise _Named(f"{min(twice)} is given twice")
        flat |= inner
    return flat


def _problems(error: ValidationError) -> tuple[str, ...]:
    found = error.errors(include_url=False)
    problems = (
        (".".join(map(str, each["loc"])), each["msg"].removeprefix("Value error, "))
        for each in found
    )
    return tuple(f"{where}: {what}" if where else what for where, what in problems)


DEFAULTS = ContextSettings()


"""All settings at their defaults."""


def settings_of(given: ContextSettings | None) -> ContextSettings:
    """Return the given settings, or the defaults if there are none.

    Raises:
        TypeError: The argument is not `ContextSettings`, for example a mapping.
    """
    if given is None or isinstance(given, ContextSettings):
        return given or DEFAULTS
    advice = "use ContextSettings.from_mapping for a mapping"
    raise TypeError(f"settings must be ContextSettings, not {type(given).__name__}: {advice}")


def strategy_for(strategy: Strategy | str | None, settings: ContextSettings | None) -> Strategy:
    """Return the strategy of a request: the one that is given, or else that of the settings.

    The options in the settings belong to the strategy that the settings name.

    Raises:
        UnknownStrategy: No strategy has this name.
        InvalidSettings: The strategy does not take the options in the settings.
        TypeError: The object is not a strategy, or the settings are not `ContextSettings`.
    """
    chosen = settings_of(settings)
    if strategy is None or strategy == chosen.strategy:
        return strategy_of(chosen.strategy, **chosen.strategy_options)
    return strategy_of(strategy)


class ContextOptions(TypedDict, total=False):
    """How the messages of a request are chosen; all optional, and each overrides the settings.

    Attributes:
        model: Decides how tokens are counted; ``gpt-4o`` by default.
        max_tokens: Tokens of the whole call, by the project's own count; by default the setting,
            whose default ``model`` means the model's context window. If the window is unknown,
            nothing is trimmed, and the view's ``notes`` say so.
        reserve_for_response: How many of ``max_tokens`` are kept free for the response.
        max_messages: Upper limit for the number of messages.
        mode: The mode for which the system part is composed; by default the conversation's or the
            turn's. In ``run`` mode the system part describes the active run: its directive and the
            active node's brief or, once the run is completed, its directive and post-run protocol.
            None composes nothing: only the conversation's own instructions are sent.
        agent: The agent whose persona is sent in agent and run mode; in a turn, by default the
            conversation's.
        tools: The tool declarations to send, which count towards the budget. The view's ``tools``
            are those that the conversation's tool policy permits.
        run: The id of the run to describe instead of the active one, or False for none; runs are
            described in ``run`` mode only. Without a mode, True describes the active run.
        settings: Limits and choices.
        strategy: The strategy to use instead of the one that the settings name.
        format: ``openai_chat``, ``openai_responses``, ``anthropic_messages`` or ``neutral``.
        provider: The provider that will be called: gets back the content made for its own use, such
            as signed thinking.
        paths: Whether the request shows the paths of outputs that it does not contain whole, for a
            tool of the product that reads them. By default a view shows them, and a turn shows them
            if the model can read them: if ``tools`` contains ``read_output``, or the outputs exist
            as files.
    """

    model: str
    max_tokens: int | Literal["model"] | None
    reserve_for_response: int | None
    max_messages: int | None
    mode: RequestMode
    agent: str | None
    tools: Collection[Any]
    run: bool | str | None
    settings: ContextSettings | None
    strategy: Strategy | str | None
    format: str
    provider: str | None
    paths: bool | None


class ContextRequestOptions(ContextOptions, Owned, total=False):
    """`ContextOptions`, and the options for a view of a conversation that is not open.

    Attributes:
        tool_policy: A policy for this request, merged with the conversation's.
        at: The version to show, by replay; the cost grows with the number of events.
        tenant_id: The tenant that the conversation must have.
        user_id: The user that the conversation must have.
    """

    tool_policy: ToolPolicy | None
    at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextRequest:
    """The options with their defaults; see `ContextOptions`."""

    model: str = "gpt-4o"
    max_tokens: int | Literal["model"] | None = None
    reserve_for_response: int | None = None
    max_messages: int | None = None
    mode: RequestMode = "active"
    agent: str | None = None
    tools: Collection[Any] = ()
    tool_policy: ToolPolicy | None = None
    run: bool | str | None = None
    settings: ContextSettings | None = None
    strategy: Strategy | str | None = None
    format: str = "openai_chat"
    provider: str | None = None
    paths: bool | None = None
    at: int | None = None


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
    candidates = [(name, seller) for name in names for seller in dict.fromkeys((provider, None))]
    # As routers write it: the seller, then the seller's name for the model.
    first, _, rest = model.strip().lower().partition("/")
    candidates += [(name, first) for name in (rest, *names) if rest]
    candidates += [(name, _CLOUD) for name in names]
    for name, seller in candidates:
        try:
            made_by, found = listed_models().find_provider_model(name, None, seller, None)
        except LookupError:
            continue
        if found.context_window:
            return int(found.context_window)
        if seller != _ROUTER:
            candidates.append((f"{made_by.id}/{name}", _ROUTER))
    return None


_log = get_logger(__name__)


_LONGEST_NAME = 200  # characters of a name in a message


@dataclass(frozen=True, slots=True)
class Allowed:
    """How many tokens a prompt may have; None for any number, with the reason in ``note``."""

    tokens: int | None
    note: str = ""

    def annotated(self, view: ContextView) -> ContextView:
        """Return the view, with the note added to its ``notes`` if there is one."""
        return replace(view, notes=(*view.notes, self.note)) if self.note else view


def budget_of(settings: ContextSettings, request: ContextRequest) -> Allowed:
    """Return the budget of a request, and check its other numbers and the model's name.

    Raises:
        TypeError: A number is not an integer, or the model or provider is not a string.
        ValueError: A number is out of range; see `ContextSettings.budget`.
    """
    for name, limit in (("max_messages", request.max_messages), ("at", request.at)):
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool)):
            raise TypeError(f"{name} must be an integer, not {limit!r}")
    for name, given in (("model", request.model), ("provider", request.provider or "")):
        if not isinstance(given, str):
            raise TypeError(f"{name} must be a string, not {given!r}")
    most = settings.max_tokens if request.max_tokens is None else request.max_tokens
    window = window_of(request.model, request.provider) if most == "model" else None
    tokens = settings.budget(request.max_tokens, request.reserve_for_response, window=window)
    if most != "model" or tokens is not None:
        return Allowed(tokens)
    if settings.section_budgets:
        return Allowed(None, f"{_unknown(request.model)}, and section_budgets have no effect")
    return Allowed(None, _unknown(request.model))


@lru_cache(maxsize=256)
def _unknown(model: str) -> str:
    """Return the note about a model whose window is unknown, and log it once per process."""
    named = model[:_LONGEST_NAME] or "without a name"
    warning = f"no budget: the context window of model {named} is not known, nothing is trimmed"
    _log.warning(warning)
    return warning
