"""The benchmarks' own parts: verdicts, tables, the workload, and a run from end to end."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from rich.console import Console

from benchmarks import peers
from benchmarks.__main__ import BENCHMARKS, run
from benchmarks.bench import TINY, Bench
from benchmarks.measure import Amount, Figure
from benchmarks.render import markdown
from benchmarks.results import HEADINGS, Target, work
from benchmarks.workload import conversation, fill
from eventstore import EventStore, events
from eventstore.ids import call_id

FLOOR = Figure("bare", (0.001, 0.001, 0.001), 1)
OURS = Figure("ours", (0.001, 0.002, 0.009), 1)

RNG = Random(1)  # noqa: S311 - a workload, no secret


@pytest.fixture(autouse=True)
def no_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the peers out: they are not installed everywhere, and slow to import."""
    monkeypatch.setattr(peers, "EVENTSOURCING", False)
    monkeypatch.setattr(peers, "AGENTS", False)


class TestVerdicts:
    """What a target makes of a figure."""

    def test_the_first_candidate_is_the_floor(self) -> None:
        """It has no ratio, and the others' are to it."""
        assert ["", "2.00"] == [line.ratio for line in work("w", [FLOOR, OURS]).lines]

    def test_an_event_is_compared_with_an_event(self) -> None:
        """Twice the time for four times the events is half."""
        many = Figure("many", (0.002,), 4)
        assert "0.50" == work("w", [FLOOR, many]).lines[1].ratio

    @pytest.mark.parametrize(
        ("target", "reached"),
        [
            (Target(ratio=2.0), "yes"),
            (Target(ratio=1.9), "no: 2.00 x"),
            (Target(rate=500), "yes"),
            (Target(rate=501), "no: 500"),
            (Target(median_ms=2), "yes"),
            (Target(median_ms=1.9), "no: 2.00 ms"),
            (Target(p99_ms=9), "yes"),
            (Target(p99_ms=8.9), "no: 9.00 ms"),
            (Target(ratio=3, median_ms=1), "no: 2.00 ms"),
            (Target(ratio=1.5, against="bare"), "no: 2.00 x"),
            (Target(ratio=2.5, against="bare"), "yes: 2.00 x"),
        ],
    )
    def test_a_target_is_reached_or_not(self, target: Target, reached: str) -> None:
        """Its limit is still good, and what misses it is shown."""
        assert reached == work("w", [FLOOR, OURS], {"ours": target}).lines[1].reached

    def test_an_amount_has_a_limit_too(self) -> None:
        """In its own unit, and it has neither rate nor p99."""
        [line] = work("w", [Amount("a", 3.5, "MB")], {"a": Target(amount=3)}).lines
        assert ("a", "3.50 MB", "", "", "", "at most 3 MB", "no: 3.50") == line.cells


class TestPage:
    """The figures as Markdown."""

    def test_it_is_one_table_under_the_headings(self) -> None:
        """A row each candidate, a cell each heading, the work named once, the notes below."""
        first = work("one", [FLOOR, OURS], {"ours": Target(rate=1)}, note="Read it so.")
        page = markdown(["Measured by hand."], [first, work("two", [FLOOR])])
        rows = [line for line in page.splitlines() if line.startswith("|")]
        assert f"| {' | '.join(HEADINGS)} |" == rows[0]
        assert ["one", "", "two"] == [row.split("|")[1].strip() for row in rows[2:]]
        assert {len(HEADINGS) + 2} == {len(row.split("|")) for row in rows}
        assert "- Measured by hand." in page
        assert "- 1 of 1 targets reached." in page
        assert "- **one**: Read it so." in page


class TestWorkload:
    """The events that are measured with."""

    def test_it_has_the_length_asked_for_and_every_type(self) -> None:
        """A turn has eleven events of eight types, after the conversation's start."""
        told = Counter(event.data.type for event in conversation(23, RNG))
        assert 23 == told.total()
        assert 9 == len(told)

    def test_tool_calls_have_the_store_s_ids(self) -> None:
        """So that a projection can pair them with the message that wanted them."""
        told = list(enumerate((event.data for event in conversation(23, RNG)), 1))
        wanted = [version for version, data in told if getattr(data, "tool_calls", ())]
        called = [data.call_id for _, data in told if isinstance(data, events.ToolCall)]
        assert 2 == len(called)
        assert [call_id(version, 0) for version in wanted] == called

    def test_a_store_is_filled_to_the_last_event(self) -> None:
        """Whatever the conversations' lengths come to."""
        with EventStore.open("sqlite://") as store:
            fill(store, 321)
            assert 321 == len(store.read_all().events)


class TestRuns:
    """A run from end to end, with next to nothing to do."""

    def test_one_benchmark_is_run_and_written(
        self, postgres_server_url: str, tmp_path: Path
    ) -> None:
        """The table is printed, and the page says how it came about and what is left out."""
        output, printed = tmp_path / "results.md", io.StringIO()
        console = Console(file=printed, width=200)
        with Bench(TINY, postgres_server_url) as bench:
            assert 0 == run(bench, ["append"], command="measure", output=output, console=console)
        page = output.read_text("utf-8")
        assert "- `measure`" in page
        assert "openai-agents is not installed and left out" in page
        assert page.count("EventStore.append") == 3
        assert "One durable event, SQLite FULL" in printed.getvalue()

    def test_contexts_are_read_at_each_length(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Within both budgets, warm and for the first time, of transcripts and of other kinds."""
        monkeypatch.setattr("torture.server._programs", _missing)
        with Bench(TINY) as bench:
            done = [*BENCHMARKS["context"](bench)]
        warm = ["at 4 messages", "at 8 messages"]
        first = [f"of {which}, {name}" for which in ("all", "a process") for name in warm]
        kinds = ["Chinese", "images", "results of 1 MB"]
        found = [[line.candidate for line in each.lines] for each in done]
        assert [warm, warm, warm, first, kinds] == found
        assert [8_000, 200_000] == [int(each.name.split()[6].replace(",", "")) for each in done[:2]]

    def test_imports_are_compared_with_those_of_two_libraries(self) -> None:
        """Of the package and of the command's help, each in a process of its own."""
        with Bench(replace(TINY, rounds=1)) as bench:
            [done] = BENCHMARKS["imports"](bench)
        assert "import sqlalchemy, pydantic" == done.lines[0].candidate
        assert ["import agent_eventstore", "eventstore --help"] == [
            line.candidate for line in done.lines if line.reached.startswith("yes")
        ]

    def test_where_it_was_measured_is_not_told(
        self, postgres_server_url: str, tmp_path: Path
    ) -> None:
        """Neither paths nor URLs get into the page."""
        output = tmp_path / "results.md"
        with Bench(TINY, postgres_server_url) as bench:
            run(bench, ["replay"], command="measure", output=output, console=_silent())
            assert str(bench.folder) not in output.read_text("utf-8")
        assert "://" not in output.read_text("utf-8")

    def test_what_cannot_be_run_fails_the_run(
        self,
        postgres_server_url: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """The others are run, nothing is written, and the reason is shown."""

        def broken(bench: Bench) -> list[object]:
            raise RuntimeError("no such measure")

        monkeypatch.setitem(BENCHMARKS, "broken", broken)
        output = tmp_path / "results.md"
        with Bench(TINY, postgres_server_url) as bench:
            names = ["broken", "replay"]
            assert 1 == run(bench, names, command="m", output=output, console=_silent())
        assert not output.exists()
        assert "no such measure" in capsys.readouterr().err

    def test_without_postgresql_the_run_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """SQLite is measured alone."""
        monkeypatch.setattr("torture.server._programs", _missing)
        with Bench(TINY) as bench:
            assert ("SQLite",) == bench.databases
            assert bench.left_out[0].startswith("PostgreSQL is left out")


def _silent() -> Console:
    return Console(file=io.StringIO())


def _missing() -> Path:
    from tests.postgres import PostgresUnavailable

    raise PostgresUnavailable("there is none.")
