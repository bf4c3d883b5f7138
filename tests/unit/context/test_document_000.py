"""What document 000 says of messages[], for each claim: at three budgets, of seven kinds of text.

`docs/design/documents.md` names the test of each claim.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest

from eventstore.events import (
    AssistantMessage,
    LlmError,
    ModeSwitch,
    Payload,
    Summary,
    ToolCallRequest,
    ToolResult,
    UserMessage,
    VersionRange,
)
from projections.context import ContextSettings, ContextView
from projections.context.compression import compress
from projections.context.prompts import Injection, PromptTexts, compose
from tests.unit.context.log import Log

BUDGETS = (3_000, 6_000, 12_000)
ROUNDS = 12
LINES = 90  # of an output
TABLE = "| place | guests | paid |\n|---|---|---|\n"
KINDS = {
    "list": "{line}. Pack the blue box of shelf {n}, then close the door.",
    "code": "def step_{n}(value: int) -> int:\n    return value * {n} + offset\n",
    "table": "| room {n} | {n} of 7 | yes |",
    "log": "2026-11-25T10:{line:02}:07 INFO worker finished job {n} in 12 ms",
    "english": "The {n} visitors who came by train were glad about the warm weather of that day.",
    "chinese": "第{n}位客人说今天的天气很好,我们一起去公园散步吧。",
    "german": "Am {n}. Tag fuhr die Familie z. B. mit dem Zug nach München und blieb dort lange.",
}
CONCLUSIONS = {
    "chinese": "结论:{n}方案最好。",
    "german": "Summary: {n} passt am besten.",
}
USERS = {
    "chinese": "问题{n}:请比较第{n}个方案。",
    "german": "Frage {n}: Vergleiche bitte den Vorschlag {n}.",
}
FILLING = {
    "chinese": "今天的会议讨论了很多事情。",
    "german": "Das Wetter war wieder schön.",
}
ANSWERS = 14  # sentences of an answer that need not stay

pytestmark = [
    pytest.mark.parametrize("budget", BUDGETS),
    pytest.mark.parametrize("kind", KINDS),
]
each_way = pytest.mark.parametrize("steps", [True, False])


def output_of(kind: str, n: int) -> str:
    """Return an output of a tool, different for each round."""
    lines = [KINDS[kind].format(n=n * 1_000 + line, line=line) for line in range(1, LINES + 1)]
    return (TABLE if kind == "table" else "") + "\n".join(lines)


def question(kind: str, n: int) -> str:
    """Return what the user asks in a round."""
    return USERS.get(kind, "Question {n}: please compare plan {n}.").format(n=n)


def conclusion(kind: str, n: int) -> str:
    """Return the conclusion of a round's answer; without digits, which would keep it anyway."""
    named = "".join(chr(ord("a") + int(digit)) for digit in str(n))
    return CONCLUSIONS.get(kind, "Conclusion: plan {n} fits best.").format(n=named)


def answer(kind: str, n: int) -> str:
    """Return a long answer of a round: text of the kind, idle sentences, and a conclusion."""
    idle = "\n".join([FILLING.get(kind, "It went on and on as ever.")] * ANSWERS)
    part = "\n".join(output_of(kind, n).split("\n")[:3])
    return f"{idle}\n\n{part}\n\n{idle}\n\n{conclusion(kind, n)}"


@cache
def log_of(kind: str) -> Log:
    """Return rounds: a question, a call, its long output, a long answer; the last has none."""
    entries: list[Payload] = []
    for n in range(1, ROUNDS + 2):
        call = ToolCallRequest(name="read_plan", arguments_text=f'{{"plan": {n}}}')
        result = ToolResult(call_id=f"{len(entries) + 2}.0", content=output_of(kind, n))
        entries += [
            UserMessage.text(question(kind, n)),
            AssistantMessage(tool_calls=(call,)),
            result,
            AssistantMessage.of(answer(kind, n)),
        ]
    return Log(entries[:-1])


@cache
def view_of(kind: str, budget: int, steps: bool = False, **options: Any) -> ContextView:
    """Return the request of the rounds; what a test looks for has been left out of all of them."""
    view = log_of(kind).view(max_tokens=budget, settings=ContextSettings(steps=steps), **options)
    assert not view.complete
    return view


def contents(view: ContextView, role: str) -> list[str]:
    """Return the contents of the messages of a role that have one."""
    return [
        str(each["content"]) for each in view.messages if each["role"] == role and each["content"]
    ]


def round_of(version: int) -> int:
    """Return the round of an event."""
    return (version - 1) // 4 + 1


@each_way
def test_calls_and_results_stay_together_in_their_order(
    kind: str, budget: int, steps: bool
) -> None:
    """``assistant(tool_calls)``, ``tool``, ``assistant(content)``, in the order of the log."""
    view = view_of(kind, budget, steps)
    open_ids: list[str] = []
    for message in view.messages:
        if message["role"] == "tool":
            assert open_ids.pop(0) == message["tool_call_id"]
        else:
            assert open_ids == []
            open_ids = [call["id"] for call in message.get("tool_calls") or ()]
    assert open_ids == []
    asked = [int(each) for each in re.findall(r"\d+", "\n".join(contents(view, "user")))]
    assert asked == sorted(asked)
    assert view.messages[-1]["role"] == "tool"


@each_way
def test_the_first_and_the_latest_user_message_are_whole(
    kind: str, budget: int, steps: bool
) -> None:
    """The task first of the conversation, and the latest message last of all."""
    view = view_of(kind, budget, steps)

    assert view.messages[0]["content"] == question(kind, 1)
    assert view.messages[-3]["content"] == question(kind, ROUNDS + 1)


@each_way
def test_all_user_messages_stay_while_outputs_can_shrink(
    kind: str, budget: int, steps: bool
) -> None:
    """What users say survives at each of the budgets, word for word."""
    asked = [question(kind, n) for n in range(1, ROUNDS + 2)]

    assert contents(view_of(kind, budget, steps), "user") == asked


def test_a_shortened_output_has_tool_status_both_ends_and_path(kind: str, budget: int) -> None:
    """A preview: name and status, first and last lines, and where the whole output is."""
    view = view_of(kind, budget)
    seen = 0
    for message in view.messages:
        if message["role"] != "tool":
            continue
        version = int(message["tool_call_id"].split("_")[1])
        text, whole = str(message["content"]), output_of(kind, round_of(version))
        if text == whole:
            continue
        seen += 1
        lines = [line for line in whole.split("\n") if line]
        assert text.startswith("TOOL_RESULT_PREVIEW\n- tool: read_plan\n- status: success\n")
        assert lines[0] in text
        assert lines[-1] in text
        assert text.endswith(f"\nFull output: @state/logs/tool-results/{version}.0.txt")
    assert seen


@each_way
def test_the_newest_output_is_there_with_its_path(kind: str, budget: int, steps: bool) -> None:
    """An agent sees what its last call returned, or calls again and again."""
    whole = output_of(kind, 1)
    call = ToolCallRequest(name="read_plan", arguments_text="{}")
    log = Log([UserMessage.text(question(kind, 1)), AssistantMessage(tool_calls=(call,))])
    log.add(ToolResult(call_id="2.0", content="\n".join([whole, *[whole] * 9])))
    view = log.view(max_tokens=budget // 2, settings=ContextSettings(steps=steps))

    assert not view.complete
    shown = str(view.messages[-1]["content"])
    for told in ("read_plan", "success", whole[:20], whole[-20:], "@state/logs/tool-results/2.0"):
        assert told in shown


@each_way
def test_a_kept_question_has_the_conclusion_of_its_answer(
    kind: str, budget: int, steps: bool
) -> None:
    """Decisions are kept, in the answer or as a line of the digest: no question looks open."""
    view = view_of(kind, budget, steps)
    asked = contents(view, "user")
    answers = "\n".join(contents(view, "assistant") + contents(view, "system"))
    kept = [n for n in range(2, ROUNDS + 1) if question(kind, n) in asked]

    assert len(kept) >= 3
    assert [n for n in kept if conclusion(kind, n) not in answers] == []


@each_way
def test_idle_talk_is_what_goes(kind: str, budget: int, steps: bool) -> None:
    """Of a shortened answer, idle sentences go, and what it is about and its end stay."""
    entries: list[Payload] = []
    for n in range(90):
        entries += [UserMessage.text(question(kind, n)), AssistantMessage.of(answer(kind, n))]
    settings = ContextSettings(steps=steps)
    view = Log(entries).view(max_tokens=budget, settings=settings)
    idle = FILLING.get(kind, "It went on and on as ever.")
    shorter = [text for text in contents(view, "assistant") if text.count(idle) < ANSWERS]

    assert len(shorter) >= 3
    for text in shorter:
        assert text.startswith(idle)
        assert any(text.endswith(conclusion(kind, n)) for n in range(90))


def test_the_last_four_rounds_go_last(kind: str, budget: int) -> None:
    """Their answers lose no more detail than any before them, nor do their outputs."""
    order = ("full", "shortened", "facts", "dropped")
    for place in (2, 0):  # the call with its output, the answer
        levels = {
            round_of(entry.version): order.index(entry.level)
            for entry in view_of(kind, budget).ledger
            if entry.version and entry.version % 4 == place
        }
        last = [level for n, level in levels.items() if n > ROUNDS + 1 - 4]
        before = [level for n, level in levels.items() if n <= ROUNDS + 1 - 4]
        assert len(last) >= 3
        assert max(last) <= min(before)


def test_of_a_long_user_text_the_first_paragraph_and_the_bullets_stay(
    kind: str, budget: int
) -> None:
    """The first paragraph, and each bullet whole; of the rest, what has no weight goes."""
    idle = FILLING.get(kind, "It went on and on as ever.")
    bullets = [f"- Dr. Ho asks for the {word} one. And soon." for word in ("red", "blue", "big")]
    long = "\n\n".join([f"{idle} {question(kind, 77)}", f"{idle}\n" * 900, "\n".join(bullets)])
    log = Log([UserMessage.text("Hello."), AssistantMessage.of("Hello.")])
    log.add(UserMessage.text(long))
    for entry in (AssistantMessage.of("Yes."), UserMessage.text("Go on.")):
        log.add(entry)
    view = log.view(max_tokens=budget // 4, settings=ContextSettings(steps=False))
    [shorter] = [text for text in contents(view, "user") if "Dr. Ho" in text]

    assert len(shorter) < len(long) // 10
    assert question(kind, 77) in shorter
    for bullet in bullets:
        assert bullet in shorter.split("\n")


def test_nothing_loses_detail_up_to_the_trigger(kind: str, budget: int) -> None:
    """Above the trigger, the history is cut to the target; at the trigger, it is whole."""
    settings = ContextSettings(target=0.5)
    entries: list[Payload] = [UserMessage.text(question(kind, 1))]
    view = Log(entries).view(max_tokens=budget, settings=settings)
    log, before = Log(entries), view
    for n in range(2, 400):
        before = view
        log.add(AssistantMessage.of(answer(kind, n % 90)))
        log.add(UserMessage.text(question(kind, n)))
        view = log.view(max_tokens=budget, settings=settings)
        if not view.complete:
            break
    assert before.usage is not None
    assert view.usage is not None
    assert before.usage.used <= budget
    assert view.usage.used <= budget
    assert view.usage.used < before.usage.used
    assert before.usage.status != "compressing"
    assert view.usage.status == "compressing"


def test_usage_says_how_full_the_request_is(kind: str, budget: int) -> None:
    """Percent, remaining tokens and status are those of the request, within the budget."""
    view = view_of(kind, budget, True)
    usage = view.usage
    assert usage is not None
    assert usage.used == view.tokens.tokens
    assert usage.used <= usage.budget == budget
    assert usage.used + usage.remaining == budget
    assert usage.percent == round(100 * usage.used / budget, 1)
    assert usage.status == "compressing"


def test_the_ledger_says_what_was_kept_and_dropped(kind: str, budget: int) -> None:
    """Each message of the log has a level, and the tokens add up to no more than were sent."""
    view = view_of(kind, budget, True)
    listed = {version for entry in view.ledger for version in entry.source_versions}

    assert listed == set(range(1, 4 * ROUNDS + 4))
    assert sum(entry.tokens_after for entry in view.ledger) <= view.tokens.tokens
    assert {"full", "shortened"} <= {entry.level for entry in view.ledger}


def test_a_summary_is_a_system_message_before_what_is_kept(kind: str, budget: int) -> None:
    """It stands for older messages, of which nothing else is sent."""
    log = Log(log_of_entries(kind))
    told = f"Plans 1 to 6 were compared. {conclusion(kind, 6)}"
    log.add(Summary(text=told, versions=(VersionRange(first=1, last=24),)))
    log.add(UserMessage.text("And now?"))
    view = log.view(max_tokens=budget, settings=ContextSettings(steps=False))
    [place] = [n for n, each in enumerate(view.messages) if told in str(each["content"])]

    assert view.messages[place]["role"] == "system"
    assert view.messages[place]["content"].startswith("CONVERSATION_SUMMARY")
    assert not any(question(kind, n) in contents(view, "user") for n in range(2, 7))
    assert view.messages.index({"role": "user", "content": question(kind, 8)}) > place


def log_of_entries(kind: str) -> list[Payload]:
    """Return the first ten rounds without their calls' outputs being long."""
    entries: list[Payload] = []
    for n in range(1, 11):
        call = ToolCallRequest(name="read_plan", arguments_text=f'{{"plan": {n}}}')
        entries += [
            UserMessage.text(question(kind, n)),
            AssistantMessage(tool_calls=(call,)),
            ToolResult(call_id=f"{len(entries) + 2}.0", content=output_of(kind, n)[:300]),
            AssistantMessage.of(answer(kind, n)),
        ]
    return entries


@pytest.mark.parametrize("strategy", ["retrieval", "hybrid"])
def test_what_answers_the_latest_message_outlasts_the_rest(
    kind: str, budget: int, strategy: str
) -> None:
    """An old message that the latest one is about is whole, those around it are not."""
    found = f"The password of the harbour gate is heron. {conclusion(kind, 3)}"
    history = [{"role": "user", "content": question(kind, 1)}]
    for n in range(2, 60):
        history += [
            {"role": "assistant", "content": found if n == 5 else answer(kind, n)},
            {"role": "user", "content": question(kind, n)},
        ]
    history.append({"role": "user", "content": "What was the password of the harbour gate?"})
    done = compress(history, max_tokens=budget, strategy=strategy)

    assert found in [each["content"] for each in done.messages]
    assert answer(kind, 4) not in [each["content"] for each in done.messages]


@pytest.mark.parametrize("mode", ["chat", "agent", "run"])
def test_the_system_part_is_in_front_and_not_in_the_history(
    kind: str, budget: int, mode: str
) -> None:
    """Rules, policy, persona (not in chat), banner; the run's texts in run mode alone."""
    texts = PromptTexts(texts={"personas/coder.md": f"You are Kim. {conclusion(kind, 9)}"})
    tools = [{"type": "function", "function": {"name": "read_plan"}}]
    runs = (Injection("run directive", f"RUN_DIRECTIVE\n- {conclusion(kind, 8)}", (1,)),)
    parts = compose(mode, texts=texts, agent="coder", tools=tools, runs=runs)
    view = log_of(kind).view(
        max_tokens=budget + 1_000, tools=tools, injections=parts, settings=ContextSettings()
    )
    front = [str(each["content"]) for each in view.messages[: len(parts)]]

    assert front == [part.text for part in parts]
    assert ("You are Kim." in "\n".join(front)) == (mode != "chat")
    assert ("RUN_DIRECTIVE\n" in "\n".join(front)) == (mode == "run")
    banner = f"MODE\n- active: {mode}\n- note: history may include other modes; "
    assert sum(text.startswith(banner) for text in front) == 1
    assert view.messages[len(parts)]["content"] == question(kind, 1)


def test_a_continue_finds_the_partial_text_and_the_error(kind: str, budget: int) -> None:
    """The end of what had streamed, then the block ``LLM_ERROR``, in an assistant message."""
    partial = "\n".join(output_of(kind, n) for n in range(1, 9))
    log = Log([UserMessage.text("Begin."), AssistantMessage.of("Yes."), UserMessage.text("Go on.")])
    log.add(LlmError(llm_call_id="a", kind="timeout", message="too late", partial_text=partial))
    log.add(UserMessage.text("continue"))
    view = log.view(max_tokens=budget // 2, settings=ContextSettings())
    [error] = [text for text in contents(view, "assistant") if "LLM_ERROR" in text]

    assert partial not in error
    assert error.index(partial[-30:].strip()) < error.index("LLM_ERROR\n- kind: timeout")
    assert view.messages[-1]["content"] == "continue"


def test_a_switch_of_mode_does_not_reset_the_history(kind: str, budget: int) -> None:
    """The same messages, whatever modes the conversation was in."""
    switched = Log()
    entries = [UserMessage.text(question(kind, 1)), AssistantMessage.of(answer(kind, 1))] * 30
    plain = Log(entries).view(max_tokens=budget // 2)
    for n, entry in enumerate(entries):
        switched.add(entry)
        if n % 20 == 5:
            switched.add(ModeSwitch(mode=("agent", "run", "chat")[n // 20]))
    view = switched.view(max_tokens=budget // 2)

    assert not view.complete
    assert view.messages == plain.messages
