"""A short part of ``make fuzz`` in every run, and that it would notice what it looks for."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from eventstore.errors import InvalidCursor
from tests.fuzz import runs
from tests.fuzz.mutation import Mutator
from tests.fuzz.runs import Batch, Templates, run_batch
from tests.fuzz.world import World, fill
from tests.postgres import fresh_database

SEED = 1
BOUND_S = 60.0


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Templates:
    """Give the file that each batch works on a copy of."""
    folder = tmp_path_factory.mktemp("template")
    fill(f"sqlite:///{folder / 'store.db'}", folder)
    return Templates(folder / "store.db")


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("start", range(0, 150, 50))
def test_mutants_break_nothing(templates: Templates, start: int) -> None:
    """Importers, API and command line answer each in words of their own; the store stays whole."""
    assert [] == run_batch(Batch(SEED, range(start, start + 50), BOUND_S, templates))


@pytest.mark.filterwarnings("default")
def test_mutants_break_nothing_on_postgresql(
    postgres_server_url: str, upgraded_database: str, tmp_path: Path
) -> None:
    """The server has its own opinion of texts and numbers."""
    with fresh_database(postgres_server_url, template=upgraded_database) as url:
        fill(url, tmp_path)
        name = url.rsplit("/", 1)[1].split("?")[0]
        templates = Templates(tmp_path / "none", postgres_server_url, name)
        assert [] == run_batch(Batch(SEED, range(1_000, 1_030), BOUND_S, templates, True))


def test_a_number_gives_the_same_mutant() -> None:
    """What failed once can be seen again."""
    one, two, other = Mutator(1, 7), Mutator(1, 7), Mutator(1, 8)
    document = [{"role": "user", "content": "x" * number} for number in range(9)]
    assert one.file(document, by_line=True) == two.file(document, by_line=True)
    assert repr(one.value(5)) == repr(two.value(5))
    assert one.random.random() != other.random.random()


def _answers(_: World, __: Mutator) -> None:
    raise InvalidCursor("x")


def _raises(_: World, __: Mutator) -> None:
    raise KeyError("missing")


def _hangs(_: World, __: Mutator) -> None:
    time.sleep(60)


def _spoils(world: World, _: Mutator) -> None:
    with world.store.writing() as connection:
        connection.exec_driver_sql("UPDATE conversations SET tenant_id = 'mallory'")


@pytest.mark.parametrize(
    ("surface", "expected"),
    [
        (_answers, []),
        (_raises, ["_raises: KeyError"] * 2),
        (_hangs, ["_hangs: Hang"] * 2),
        (_spoils, ["after range(0, 2)"]),
    ],
)
def test_failures_are_noticed(
    templates: Templates,
    monkeypatch: pytest.MonkeyPatch,
    surface: object,
    expected: list[str],
) -> None:
    """Errors that are no answer, what does not end, and a store that is not whole."""
    monkeypatch.setattr(runs, "SURFACES", (surface,))
    bound_s = 0.1 if surface is _hangs else BOUND_S
    found = run_batch(Batch(SEED, range(2), bound_s, templates))
    assert expected == [failure.what for failure in found]
