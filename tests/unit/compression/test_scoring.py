"""Scores are whole hundredths, made of parts that can be named."""

from __future__ import annotations

import pytest

from projections.context.compression.scoring import is_decision, last_rounds, score_of
from tests.unit.compression.example import called, item, items, said, user


def parts(text: str) -> dict[str, int]:
    """Return the parts of an assistant text's score but for recency."""
    return {
        name: points
        for name, points in score_of(items(said(text))[0], 1).parts
        if name != "recency"
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("You must and should", {"keywords": 40}),
        ("必须退款,需要确认", {"keywords": 40}),
        ("must should need never always", {"keywords": 60}),
        ("see src/app/main.py", {"paths": 50}),
        ("打开 ./a.txt 看看", {"paths": 50}),
        ("either and/or both", {}),
        ("```\nx\n```", {"code": 50}),
        ("it costs 5", {"numbers": 30}),
        ("Finished.", {"decision": 80}),
        ("任务已完成", {"decision": 80}),
        ("", {}),
    ],
)
def test_what_a_text_says_counts(text: str, expected: dict[str, int]) -> None:
    """Keywords up to a limit, a path, code, a number, a decision; in both languages."""
    assert parts(text) == expected


def test_recency_fades_without_a_border() -> None:
    """It is worth one at first, half at seventeen groups back, and never less than nothing."""
    points = [score_of(items(said("x"))[0], age).points for age in (1, 17, 1_000, 100_000)]

    assert points == [100, 50, 1, 0]


def test_large_results_are_penalised_up_to_a_limit() -> None:
    """A call with a huge result is worth less than one with a small one, but not endlessly."""
    small, large, huge = (items(*called("f", "w " * size))[0] for size in (10, 1_000, 99_000))

    penalties = [dict(score_of(each, 1).parts).get("size", 0) for each in (small, large, huge)]

    assert penalties[0] > penalties[1] > penalties[2] == -150


def test_a_user_message_is_worth_more_than_the_same_from_an_assistant() -> None:
    """Intent counts."""
    asked, answered = items(user("x"), said("x"))

    assert score_of(asked, 5).points == score_of(answered, 5).points + 100


@pytest.mark.parametrize("conclusion", ["Conclusion: take the boat.", "结论是坐船"])
def test_a_conclusion_at_either_end_of_a_long_answer_is_seen(conclusion: str) -> None:
    """Once only the first 2,000 characters were searched, and a late conclusion was idle talk."""
    idle = "It went on and on as ever. " * 300

    assert is_decision(items(said(f"{conclusion} {idle}"))[0])
    assert is_decision(items(said(f"{idle}{conclusion}"))[0])
    assert not is_decision(items(said(f"{idle}And that is it."))[0])


def test_a_result_is_no_decision() -> None:
    """A tool that says "completed" decides nothing."""
    assert not is_decision(items(*called("f", "completed"))[0])


@pytest.mark.parametrize(("rounds", "start"), [(1, 4), (2, 1), (3, 0), (9, 0), (0, 6)])
def test_rounds_begin_at_user_messages(rounds: int, start: int) -> None:
    """What stands before the first user message belongs to no round."""
    history = [item(1), item(2, kind="user"), item(3), item(4), item(5, kind="user"), item(6)]

    assert last_rounds(history, rounds) == start


def test_a_score_reads_as_words() -> None:
    """Each part is named with its points, a penalty with its sign."""
    score = score_of(items(*called("f", "word " * 100))[0], 1)

    assert str(score) == "score 0.95: recency 1.00, size -0.05"
