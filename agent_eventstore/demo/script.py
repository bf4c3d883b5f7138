"""The script of the demo: project, user messages, model replies, and two ways to be killed."""

from __future__ import annotations

from dataclasses import dataclass

from agent_eventstore.demo.scripted_model import Reply, Wanted

__all__ = ["CHANGELOG", "DEATHS", "INSTRUCTIONS", "PROJECT", "REPLIES", "TITLE", "USER", "Death"]

TITLE = "Why is the discount wrong?"

INSTRUCTIONS = (
    "You are a careful programming assistant. Use the tools to look before you answer, change as "
    "little as possible, and run the tests after every change."
)

_BROKEN = '''"""Prices of a small shop."""


def discounted(price: float, percent: float) -> float:
    """Return the price less a discount in percent."""
    return price - percent
'''

_MENDED = _BROKEN.replace("price - percent", "price * (1 - percent / 100)")

PROJECT = {
    "prices.py": _BROKEN,
    "test_prices.py": """import unittest

from prices import discounted


class Discounted(unittest.TestCase):
    def test_a_tenth_off(self):
        self.assertEqual(45.0, discounted(50, 10))

    def test_nothing_off(self):
        self.assertEqual(80, discounted(80, 0))
""",
}
"""The files of the temporary folder, by name."""

USER = (
    "Do the tests of this project pass?",
    "Please fix it.",
    "谢谢！请用一句话总结你改了什么。",  # noqa: RUF001 - as it is written in Chinese
)

REPLIES = (
    Reply(
        "I'll look at the files and run the tests.",
        (Wanted("list_files"), Wanted("read_file", path="README.md"), Wanted("run_tests")),
    ),
    Reply(
        "No. One of the two tests fails: `test_a_tenth_off` expects 45.0 for ten percent off 50, "
        "and gets 40. It looks as if the percentage is subtracted as an amount of money. There is "
        "no README that would say otherwise."
    ),
    Reply(
        "Let me read the code and its test side by side.",
        (Wanted("read_file", path="prices.py"), Wanted("read_file", path="test_prices.py")),
    ),
    Reply(
        "The function subtracts `percent` from the price. It has to take that share of the price "
        "instead, so I will change the one line",
        breaks_off="connection reset by peer",
    ),
    Reply(
        "I will change the one line that subtracts the percentage.",
        (Wanted("write_file", path="prices.py", text=_MENDED),),
    ),
    Reply("Now the tests again.", (Wanted("run_tests"),)),
    Reply(
        "Fixed. `discounted` now returns `price * (1 - percent / 100)`, and both tests pass. "
        "Nothing else was changed."
    ),
    Reply(
        "`discounted` 现在从价格中减去相应百分比的金额，"  # noqa: RUF001 - as it is written in Chinese
        "而不是直接减去百分数；两个测试均通过。"  # noqa: RUF001
    ),
)
"""In the order of the model calls; the fourth call breaks off and is retried."""


@dataclass(frozen=True, slots=True)
class Death:
    """A turn in which the agent's process is killed, and the continuation.

    Attributes:
        when: The moment of the kill, in words.
        user: The user's message.
        replies: The model's replies before the kill.
        after_chunks: How many chunks of the stream arrive; None to kill the process after the first
            tool has taken effect.
        then: The replies after the user has said "continue".
    """

    when: str
    user: str
    replies: tuple[Reply, ...]
    after_chunks: int | None
    then: tuple[Reply, ...]


CHANGELOG = "CHANGELOG.md"
_LINE = "- A discount is a share of the price, and no longer an amount."

DEATHS = {
    "stream": Death(
        when="while the model is answering",
        user="Why did nobody notice this before?",
        replies=(
            Reply(
                "Because the mistake hides where people look first. At a price of exactly 100, ten "
                "percent and an amount of ten are the same number, and 100 is what one types to "
                "try a function out. The test at a price of 50 shows it at once, but nothing runs "
                "the tests before a release, so it has to be a habit, and habits slip."
            ),
        ),
        after_chunks=45,
        then=(
            Reply(
                "In short: at a price of 100 the mistake cannot be seen, and the test that shows "
                "it was not run."
            ),
        ),
    ),
    "tool": Death(
        when="between a tool's effect and its result",
        user=f"Note the change in {CHANGELOG}.",
        replies=(Reply("One line will do.", (Wanted("append_line", path=CHANGELOG, line=_LINE),)),),
        after_chunks=None,
        then=(
            Reply(
                "Nobody knows whether the line was written, so I look before I repeat it.",
                (Wanted("read_file", path=CHANGELOG),),
            ),
            Reply("The line is there, so I did not write it again. Done."),
        ),
    ),
}
"""By what is interrupted."""
