"""Who takes part in a chat, whom a message names, and what each is asked (document 002).

Pure functions: the one place in which it is decided who answers and what of the history is told.
`ChatSession` calls them for every message; a product with a loop of its own may call them alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eventstore.events import JsonObject, Mention

__all__ = [
    "HISTORY",
    "ROLES",
    "WORKFLOW",
    "ChatContext",
    "ChatMessage",
    "ParsedMentions",
    "Participant",
    "build_chat_context",
    "build_lookup",
    "build_mode_prompt",
    "build_workflow_task_prompt",
    "next_mode_state",
    "parse_mentions",
    "resolve_prompt_user_text",
    "select_effective_targets",
    "select_prompt_history",
]

HISTORY = 20
"""Messages of the history that a participant is told, at most."""

WORKFLOW = "workflow"
"""The mode in which participants answer one after the other, each in a role."""

ROLES = ("coder", "reviewer", "tester")
"""The roles of the workflow, in their order."""

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_AFTER_A_MENTION = " ,:;\uff0c\uff1a\uff1b\u3001"


@dataclass(frozen=True, slots=True)
class Participant:
    """One who answers in a chat.

    Attributes:
        id: Up to 64 letters, digits, ``_`` and ``-``: as messages[] says who spoke.
        display_name: What people and colleagues call it; by default the id.
        persona: Who it is, as its own requests tell it.
        nicknames: Other names by which messages mention it.
        aliases: Likewise.
        model: Which model it asks, if not that of the chat.

    Raises:
        ValueError: The id is none.
    """

    id: str
    display_name: str = ""
    persona: str = ""
    nicknames: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    model: str | None = None

    def __post_init__(self) -> None:
        if _ID.fullmatch(self.id) is None:
            raise ValueError(
                f"{self.id!r} cannot be the id of a participant: choose up to 64 letters, digits, "
                "_ and -, and hand in any other name as display_name"
            )

    @property
    def name(self) -> str:
        """What the others call it."""
        return self.display_name or self.id

    def to_json(self) -> JsonObject:
        """Return what the start of a conversation keeps of it."""
        held = ((name, getattr(self, name)) for name in self.__slots__)
        told: JsonObject = {name: value for name, value in held if value}
        for name in ("nicknames", "aliases"):
            if name in told:
                told[name] = list(told[name])
        return told

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Participant:
        """Return the participant that the start of a conversation keeps."""
        told: JsonObject = {name: kept[name] for name in cls.__slots__ if name in kept}
        told |= {name: tuple(told[name]) for name in ("nicknames", "aliases") if name in told}
        return cls(**told)


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """A message of the history.

    Attributes:
        text: What was said.
        speaker: Which participant said it, by id; None for the user.
        name: What the user is called, where several people write.
        version: That of its event.
    """

    text: str
    speaker: str | None = None
    name: str | None = None
    version: int = 0


@dataclass(frozen=True, slots=True)
class ParsedMentions:
    """Whom a text mentions, in the order in which they stand, and the text without the mentions."""

    mentions: tuple[Mention, ...]
    clean_text: str


@dataclass(frozen=True, slots=True)
class ChatContext:
    """What is decided about a message: who answers it, and what each is told.

    Attributes:
        mode: The mode of the conversation.
        mentions: Whom the message mentions.
        clean_text: The message without the mentions.
        targets: Who answers, in order.
        user_text: The current input, as the prompt has it.
        history: What was said before, as much of it as the prompt has.
        task_prompt: In workflow mode, the task and what was added to it; empty elsewhere.
        role: In workflow mode, the role in which the target answers.
    """

    mode: str
    mentions: tuple[Mention, ...]
    clean_text: str
    targets: tuple[Participant, ...]
    user_text: str
    history: tuple[ChatMessage, ...] = field(repr=False)
    task_prompt: str = ""
    role: str | None = None


def build_lookup(participants: Iterable[Participant]) -> dict[str, str]:
    """Return whom each name stands for: ids, display names, nicknames, aliases, in small letters.

    Raises:
        ValueError: Two participants have one name, or a name is empty.

    >>> build_lookup([Participant("tom", "Tomcat", nicknames=("T",))])
    {'tom': 'tom', 'tomcat': 'tom', 't': 'tom'}
    """
    found: dict[str, str] = {}
    for each in participants:
        for name in (each.id, each.name, *each.nicknames, *each.aliases):
            key = name.strip().casefold()
            if not key:
                raise ValueError(f"the participant {each.id!r} has an empty name: leave it out")
            if found.setdefault(key, each.id) != each.id:
                raise ValueError(
                    f"{name!r} names both {found[key]!r} and {each.id!r}: rename one of them"
                )
    return found


def parse_mentions(text: str, lookup: Mapping[str, str]) -> ParsedMentions:
    """Return whom a text mentions, and the text without that.

    A mention is ``@`` and a known name, whatever its case; the longest name counts. An address of
    electronic mail is none, nor is a name that goes on.

    Args:
        text: What was said.
        lookup: What `build_lookup` returned.

    >>> parsed = parse_mentions("@Tom, look at this", {"tom": "tom"})
    >>> parsed.mentions[0].participant, parsed.clean_text
    ('tom', 'look at this')
    """
    found = [
        Mention(participant=lookup[name], text=each[0], start=each.start())
        for each in (_mention(tuple(lookup)).finditer(text) if lookup else ())
        if (name := each["name"].casefold()) in lookup
    ]
    pieces, at = [], 0
    for mention in found:
        start = mention.start or 0
        pieces.append(text[at:start])
        at = start + len(mention.text)
    clean = "".join([*pieces, text[at:]])
    if found:
        clean = re.sub(r"[ \t\u3000]{2,}", " ", clean).strip().lstrip(_AFTER_A_MENTION)
    return ParsedMentions(tuple(found), clean)


def _mention(names: Sequence[str]) -> re.Pattern[str]:
    longest_first = sorted(names, key=len, reverse=True)
    # A name that ends like an English word ends where that does; Chinese has no blanks.
    choices = (
        re.escape(name) + (r"(?!-?[A-Za-z0-9_])" if re.match(r"[A-Za-z0-9_]", name[-1]) else "")
        for name in longest_first
    )
    return re.compile(rf"(?<![A-Za-z0-9_.+-])[@\uff20](?P<name>{'|'.join(choices)})", re.IGNORECASE)


def select_effective_targets(
    mode: str,
    participants: Sequence[Participant],
    mentions: Iterable[Mention] = (),
    *,
    role_map: Mapping[str, str] | None = None,
    mode_state: Mapping[str, Any] | None = None,
) -> tuple[Participant, ...]:
    """Return who answers: those mentioned, or else all; in workflow mode, who has the role.

    Args:
        mode: The mode of the conversation.
        participants: Who takes part.
        mentions: Whom the message mentions; workflow mode does not look at them.
        role_map: In workflow mode, who has which role, by id.
        mode_state: In workflow mode, ``current_node`` names the role whose turn it is; without it
            the first role's.

    Raises:
        ValueError: Nobody who takes part has the role.
    """
    by_id = {each.id: each for each in participants}
    if mode == WORKFLOW:
        role = current_node(mode_state)
        chosen = (role_map or {}).get(role)
        if chosen not in by_id:
            raise ValueError(
                f"no participant has the role {role!r}: name one in role_map, which has "
                f"{dict(role_map or {})}"
            )
        return (by_id[chosen],)
    named = dict.fromkeys(each.participant for each in mentions if each.participant in by_id)
    return tuple(by_id[name] for name in named) or tuple(participants)


def current_node(mode_state: Mapping[str, Any] | None) -> str:
    """Return the role whose turn it is."""
    return str((mode_state or {}).get("current_node") or ROLES[0])


def next_mode_state(mode_state: Mapping[str, Any] | None) -> JsonObject:
    """Return the state of the workflow after its current role has answered.

    >>> next_mode_state({"current_node": "coder"})
    {'current_node': 'reviewer', 'completed': ['coder'], 'status': 'running'}
    """
    role = current_node(mode_state)
    completed = [*ROLES[: ROLES.index(role) + 1]]
    if len(completed) == len(ROLES):
        return {"current_node": ROLES[0], "completed": completed, "status": "done"}
    return {"current_node": ROLES[len(completed)], "completed": completed, "status": "running"}


def resolve_prompt_user_text(mode: str, text: str, parsed: ParsedMentions) -> str:
    """Return the current input as the prompt has it: without mentions that were followed."""
    return text if mode == WORKFLOW else parsed.clean_text or text


def select_prompt_history(
    history: Sequence[ChatMessage], *, limit: int = HISTORY, current: int | None = None
) -> tuple[ChatMessage, ...]:
    """Return the last messages of a history, at most ``limit``.

    Args:
        history: In the order in which it was said.
        limit: How many.
        current: The version of the current input, which the prompt has at its end: it is left out.
    """
    before = [each for each in history if current is None or each.version != current]
    return tuple(before[max(0, len(before) - limit) :])


def build_workflow_task_prompt(history: Iterable[ChatMessage]) -> str:
    """Return the task that a history's user messages make: the first, and those that followed.

    >>> print(build_workflow_task_prompt([ChatMessage("Sort it."), ChatMessage("In place.")]))
    Sort it.
    <BLANKLINE>
    Follow-ups, in the order in which they came:
    1. In place.
    """
    said = [each.text for each in history if each.speaker is None]
    if len(said) < 2:
        return "".join(said)
    listed = "\n".join(f"{place}. {text}" for place, text in enumerate(said[1:], start=1))
    return f"{said[0]}\n\nFollow-ups, in the order in which they came:\n{listed}"


def build_chat_context(
    text: str,
    *,
    participants: Sequence[Participant],
    mode: str,
    history: Sequence[ChatMessage] = (),
    current: int | None = None,
    role_map: Mapping[str, str] | None = None,
    mode_state: Mapping[str, Any] | None = None,
    limit: int = HISTORY,
) -> ChatContext:
    """Return all that is decided about a message; see the functions of this module.

    Args:
        text: What the user says.
        participants: Who takes part.
        mode: The mode of the conversation.
        history: What was said so far, oldest first; with ``current``, the message itself too.
        current: The version of the message, if the history has it.
        role_map: In workflow mode, who has which role, by id.
        mode_state: In workflow mode, whose turn it is.
        limit: Messages of the history that the prompt has, at most.

    Raises:
        ValueError: Two participants have one name, or nobody has the role.
    """
    parsed = parse_mentions(text, build_lookup(participants))
    workflow = mode == WORKFLOW
    told = history if current is not None else (*history, ChatMessage(text))
    return ChatContext(
        mode=mode,
        mentions=parsed.mentions,
        clean_text=parsed.clean_text,
        targets=select_effective_targets(
            mode, participants, parsed.mentions, role_map=role_map, mode_state=mode_state
        ),
        user_text=resolve_prompt_user_text(mode, text, parsed),
        history=select_prompt_history(history, limit=limit, current=current),
        task_prompt=build_workflow_task_prompt(told) if workflow else "",
        role=current_node(mode_state) if workflow else None,
    )


def build_mode_prompt(
    participant: Participant, context: ChatContext, participants: Sequence[Participant]
) -> list[JsonObject]:
    """Return the messages that a participant is asked with, in OpenAI's chat format.

    Its persona and its colleagues, what was said before, and once, at the end, the current input.
    What it said itself are answers; what others said begins with their names.
    """
    names = {each.id: each.name for each in participants}
    messages: list[JsonObject] = [
        {"role": "system", "content": _introduction(participant, context, participants)}
    ]
    for each in context.history:
        if each.speaker == participant.id:
            _add(messages, "assistant", each.text)
        else:
            who = names.get(each.speaker, each.speaker) if each.speaker else each.name
            _add(messages, "user", f"{who or 'User'}: {each.text}")
    asked = f"Task: {context.task_prompt}" if context.role else f"User: {context.user_text}"
    _add(messages, "user", asked)
    return messages


def _introduction(
    participant: Participant, context: ChatContext, participants: Sequence[Participant]
) -> str:
    told = [f"You are {participant.name} in a chat of several participants."]
    if participant.persona:
        told.append(participant.persona)
    others = [each for each in participants if each.id != participant.id]
    if others:
        listed = (f"- {each.name}: {_first_line(each.persona)}".rstrip(": ") for each in others)
        told.append("\n".join(["Your colleagues:", *listed]))
    if context.role:
        order = " -> ".join(ROLES)
        told.append(f"The work goes {order}. You are the {context.role}: do that part of the task.")
    told.append("Answer for yourself alone, without your name in front.")
    return "\n\n".join(told)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _add(messages: list[JsonObject], role: str, text: str) -> None:
    """Add a message; those of one role that follow each other are one, as some servers want it."""
    if messages[-1]["role"] == role:
        messages[-1]["content"] += f"\n\n{text}"
        return
    if role == "assistant" and messages[-1]["role"] == "system":
        messages.append({"role": "user", "content": "(What was said before is left out.)"})
    messages.append({"role": role, "content": text})
