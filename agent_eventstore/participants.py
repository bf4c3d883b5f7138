"""Participants of a chat: mentions, who answers a message, and their prompts (document 002).

Pure functions, which alone decide who answers and how much history each prompt contains.
`ChatSession` calls them for every message; a product with its own loop may call them directly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eventstore.arguments import require_several
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


_AFTER_A_MENTION = " ,:;\uff0c\uff1a\uff1b\u3001"


@dataclass(frozen=True, slots=True)
class ParsedMentions:
    """The mentions of a text, in order, and the text without them."""

    mentions: tuple[Mention, ...]
    clean_text: str


def parse_mentions(text: str, lookup: Mapping[str, str]) -> ParsedMentions:
    """Return a text's mentions, and the text without them.

    A mention is ``@`` and a known name in any case; the longest matching name counts. An email
    address is not a mention, nor is a name that is followed by more letters or digits.

    Args:
        text: The text.
        lookup: The result of `build_lookup`.

    >>> parsed = parse_mentions("@Tom, look at this", {"tom": "tom"})
    >>> parsed.mentions[0].participant, parsed.clean_text
    ('tom', 'look at this')
    """
    folded, places = _folded(text)
    found = [
        Mention(participant=lookup[each["name"]], text=text[start:end], start=start)
        for each in (_mention(tuple(lookup)).finditer(folded) if lookup else ())
        for start, end in [(places[each.start()], places[each.end()])]
        if places[each.end() - 1] < end  # not in the middle of a character, such as "ß"
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


def _folded(text: str) -> tuple[str, Sequence[int]]:
    """Return a text casefolded, and for each of its indices, the end included, that in the text.

    >>> _folded("aßb")
    ('assb', [0, 1, 1, 2, 3])
    """
    folded = text.casefold()
    if len(folded) == len(text):
        return folded, range(len(text) + 1)
    places = [place for place, character in enumerate(text) for _ in character.casefold()]
    return folded, [*places, len(text)]


def _mention(names: Sequence[str]) -> re.Pattern[str]:
    longest_first = sorted(names, key=len, reverse=True)
    # A name that ends in an ASCII word character must end at a word boundary; Chinese has none.
    choices = (
        re.escape(name) + (r"(?!-?[A-Za-z0-9_])" if re.match(r"[A-Za-z0-9_]", name[-1]) else "")
        for name in longest_first
    )
    return re.compile(rf"(?<![A-Za-z0-9_.+-])[@\uff20](?P<name>{'|'.join(choices)})")


HISTORY = 20


"""The most messages of the history in a participant's prompt."""


WORKFLOW = "workflow"


"""The mode in which participants answer in turn, each in a role."""


ROLES = ("coder", "reviewer", "tester")


"""The roles of the workflow, in order."""


_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Participant:
    """A participant that answers in a chat.

    Attributes:
        id: Up to 64 letters, digits, ``_`` and ``-``; the ``name`` of its messages in messages[].
        display_name: Its name for people and other participants; by default the id.
        persona: Its description, which is part of its prompts.
        nicknames: Other names by which messages mention it.
        aliases: More such names.
        model: Its model; by default the chat's.

    Raises:
        ValueError: The id is not valid.
    """

    id: str
    display_name: str = ""
    persona: str = ""
    nicknames: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    model: str | None = None

    def __post_init__(self) -> None:
        require_several(nicknames=self.nicknames, aliases=self.aliases)
        if _ID.fullmatch(self.id) is None:
            raise ValueError(
                f"{self.id!r} cannot be the id of a participant: choose up to 64 letters, digits, "
                "_ and -, and pass any other name as display_name"
            )

    @property
    def name(self) -> str:
        """The display name, or the id if there is none."""
        return self.display_name or self.id

    def to_json(self) -> JsonObject:
        """Return the participant as the conversation's start stores it."""
        values = ((name, getattr(self, name)) for name in self.__slots__)
        fields: JsonObject = {name: value for name, value in values if value}
        for name in ("nicknames", "aliases"):
            if name in fields:
                fields[name] = list(fields[name])
        return fields

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Participant:
        """Return the participant that a conversation's start stores."""
        fields: JsonObject = {name: stored[name] for name in cls.__slots__ if name in stored}
        # What is not a list is refused as the participant's own, instead of being split.
        lists = ("nicknames", "aliases")
        fields |= {
            name: tuple(fields[name]) for name in lists if isinstance(fields.get(name), list)
        }
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """A message of the history.

    Attributes:
        text: The text.
        speaker: The id of the participant that wrote it; None for the user.
        name: The user's name, if several people write.
        version: The version of its event.
    """

    text: str
    speaker: str | None = None
    name: str | None = None
    version: int = 0


@dataclass(frozen=True, slots=True)
class ChatContext:
    """The decisions about a message: who answers it, and the parts of their prompts.

    Attributes:
        mode: The mode of the conversation.
        mentions: The message's mentions.
        clean_text: The message without the mentions.
        targets: The participants that answer, in order.
        user_text: The current input, as it appears in the prompt.
        history: The earlier messages that the prompt contains.
        task_prompt: In workflow mode, the task and its follow-ups; empty in other modes.
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
    """Return participants' ids by name: by id, display name, nickname and alias, casefolded.

    Raises:
        ValueError: Two participants have the same name, or a name is empty.

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


def select_effective_targets(
    mode: str,
    participants: Sequence[Participant],
    mentions: Iterable[Mention] = (),
    *,
    role_map: Mapping[str, str] | None = None,
    mode_state: Mapping[str, Any] | None = None,
) -> tuple[Participant, ...]:
    """Return who answers: the mentioned participants, or all; in workflow mode, the role's holder.

    Args:
        mode: The mode of the conversation.
        participants: All participants.
        mentions: The message's mentions; workflow mode ignores them.
        role_map: In workflow mode, the participant's id by role.
        mode_state: In workflow mode, ``current_node`` is the current role; by default the first.

    Raises:
        ValueError: No participant has the role.
    """
    by_id = {each.id: each for each in participants}
    if mode == WORKFLOW:
        role = current_node(mode_state)
        chosen = (role_map or {}).get(role)
        if chosen not in by_id:
            raise ValueError(
                f"no participant has the role {role!r}: name one in role_map, which is "
                f"{dict(role_map or {})}"
            )
        return (by_id[chosen],)
    named = dict.fromkeys(each.participant for each in mentions if each.participant in by_id)
    return tuple(by_id[name] for name in named) or tuple(participants)


def current_node(mode_state: Mapping[str, Any] | None) -> str:
    """Return the workflow's current role."""
    return str((mode_state or {}).get("current_node") or ROLES[0])


def next_mode_state(mode_state: Mapping[str, Any] | None) -> JsonObject:
    """Return the state of the workflow after its current role has answered.

    Raises:
        ValueError: The current role is not one of `ROLES`.

    >>> next_mode_state({"current_node": "coder"})
    {'current_node': 'reviewer', 'completed': ['coder'], 'status': 'running'}
    """
    role = current_node(mode_state)
    if role not in ROLES:
        raise ValueError(f"the workflow has no role {role!r}: its roles are {', '.join(ROLES)}")
    completed = [*ROLES[: ROLES.index(role) + 1]]
    if len(completed) == len(ROLES):
        return {"current_node": ROLES[0], "completed": completed, "status": "done"}
    return {"current_node": ROLES[len(completed)], "completed": completed, "status": "running"}


def resolve_prompt_user_text(mode: str, text: str, parsed: ParsedMentions) -> str:
    """Return the current input for the prompt: without mentions, except in workflow mode."""
    return text if mode == WORKFLOW else parsed.clean_text or text


def select_prompt_history(
    history: Sequence[ChatMessage], *, limit: int = HISTORY, current: int | None = None
) -> tuple[ChatMessage, ...]:
    """Return the last messages of a history, at most ``limit``.

    Args:
        history: The messages, oldest first.
        limit: The most messages to return.
        current: The version of the current input, which is left out: it ends the prompt anyway.
    """
    before = [each for each in history if current is None or each.version != current]
    return tuple(before[max(0, len(before) - limit) :])


def build_workflow_task_prompt(history: Iterable[ChatMessage]) -> str:
    """Return the workflow task: the first user message of a history, and its follow-ups.

    >>> print(build_workflow_task_prompt([ChatMessage("Sort it."), ChatMessage("In place.")]))
    Sort it.
    <BLANKLINE>
    Follow-ups, in the order in which they came:
    1. In place.
    """
    texts = [each.text for each in history if each.speaker is None]
    if len(texts) < 2:
        return "".join(texts)
    listed = "\n".join(f"{place}. {text}" for place, text in enumerate(texts[1:], start=1))
    return f"{texts[0]}\n\nFollow-ups, in the order in which they came:\n{listed}"


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
    """Return all decisions about a message; see the functions of this module.

    Args:
        text: The user's message.
        participants: All participants.
        mode: The mode of the conversation.
        history: The messages so far, oldest first; with ``current``, including this message.
        current: The version of this message, if the history contains it.
        role_map: In workflow mode, the participant's id by role.
        mode_state: In workflow mode, the state of the workflow.
        limit: The most messages of the history in the prompt.

    Raises:
        ValueError: Two participants have the same name, or no participant has the role.
    """
    parsed = parse_mentions(text, build_lookup(participants))
    workflow = mode == WORKFLOW
    messages = history if current is not None else (*history, ChatMessage(text))
    return ChatContext(
        mode=mode,
        mentions=parsed.mentions,
        clean_text=parsed.clean_text,
        targets=select_effective_targets(
            mode, participants, parsed.mentions, role_map=role_map, mode_state=mode_state
        ),
        user_text=resolve_prompt_user_text(mode, text, parsed),
        history=select_prompt_history(history, limit=limit, current=current),
        task_prompt=build_workflow_task_prompt(messages) if workflow else "",
        role=current_node(mode_state) if workflow else None,
    )


def build_mode_prompt(
    participant: Participant, context: ChatContext, participants: Sequence[Participant]
) -> list[JsonObject]:
    """Return a participant's prompt, as messages in OpenAI's chat format.

    It contains the participant's persona and colleagues, the history, and once, at the end, the
    current input. The participant's own messages have the role ``assistant``; those of others begin
    with their names.
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
    request = f"Task: {context.task_prompt}" if context.role else f"User: {context.user_text}"
    _add(messages, "user", request)
    return messages


def _introduction(
    participant: Participant, context: ChatContext, participants: Sequence[Participant]
) -> str:
    sentences = [f"You are {participant.name} in a chat of several participants."]
    if participant.persona:
        sentences.append(participant.persona)
    others = [each for each in participants if each.id != participant.id]
    if others:
        listed = (f"- {each.name}: {_first_line(each.persona)}".rstrip(": ") for each in others)
        sentences.append("\n".join(["Your colleagues:", *listed]))
    if context.role:
        order = " -> ".join(ROLES)
        sentences.append(
            f"The work goes {order}. You are the {context.role}: do that part of the task."
        )
    sentences.append("Answer for yourself alone, without your name in front.")
    return "\n\n".join(sentences)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _add(messages: list[JsonObject], role: str, text: str) -> None:
    """Add a message; merge it with the last one of the same role, as some servers require."""
    if messages[-1]["role"] == role:
        messages[-1]["content"] += f"\n\n{text}"
        return
    if role == "assistant" and messages[-1]["role"] == "system":
        messages.append({"role": "user", "content": "(What was said before is left out.)"})
    messages.append({"role": role, "content": text})
