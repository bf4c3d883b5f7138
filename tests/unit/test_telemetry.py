"""Telemetry: spans and metrics by OpenTelemetry's conventions, where that is used; log events."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from sqlalchemy import make_url

from eventstore import NO_STREAM, AsyncEventStore, EventStore, events, new_id
from eventstore.errors import WrongExpectedVersion
from eventstore.telemetry import operations
from projections import PROJECTIONS, Views, worker
from projections.engine.lag import measure
from projections.upkeep import rebuild
from tests.cli.program import ROOT
from tests.warm import Programs

HELLO = events.UserMessage.text("hello")


class Collector:
    """What was sent to OpenTelemetry."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self._metrics = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider([self._metrics])

    def spans(self, name: str) -> list[ReadableSpan]:
        """Return the spans of this name that have ended."""
        return [span for span in self._spans.get_finished_spans() if span.name == name]

    def points(self, name: str) -> list[Any]:
        """Return the data points of a metric, as they are now."""
        data = self._metrics.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def gauge(self, name: str) -> dict[str | None, float]:
        """Return the values of a gauge, by projection."""
        return {
            point.attributes.get("eventstore.projection"): point.value
            for point in self.points(name)
        }


@pytest.fixture
def sent() -> Iterator[Collector]:
    """Collect what is sent while the test runs."""
    collector = Collector()
    operations.use(tracer_provider=collector.tracers, meter_provider=collector.meters)
    yield collector
    operations.switch_off()


@pytest.fixture
def store(database_url: str) -> Iterator[EventStore]:
    """Give a store on an empty database, once for each backend."""
    with EventStore.open(database_url) as store:
        yield store


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """Return a span's attributes."""
    return dict(span.attributes or {})


def test_an_append_is_a_span(sent: Collector, store: EventStore) -> None:
    """It tells database, operation, conversation, version and number of events."""
    cid = new_id()
    store.append(cid, [HELLO, HELLO])
    [span] = sent.spans("append events")
    assert {
        **operations.database(store.engine.url),
        "db.operation.name": "append",
        "db.collection.name": "events",
        "eventstore.conversation_id": str(cid),
        "eventstore.events": 2,
        "eventstore.version": 2,
    } == attributes(span)
    assert "CLIENT" == span.kind.name
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.start_time < span.end_time


def test_an_append_in_the_callers_transaction_is_a_span(sent: Collector, store: EventStore) -> None:
    """It is told as any other, when the statement is done and not yet committed."""
    cid = new_id()
    with store.writing() as connection:
        store.append(cid, [HELLO], connection=connection)
        [span] = sent.spans("append events")
        with pytest.raises(WrongExpectedVersion):
            store.append(cid, [HELLO], expected_version=NO_STREAM, connection=connection)

    assert (str(cid), 1) == tuple(
        attributes(span)[f"eventstore.{name}"] for name in ("conversation_id", "version")
    )
    assert StatusCode.ERROR == sent.spans("append events")[1].status.status_code


def test_an_append_that_fails_is_an_error(sent: Collector, store: EventStore) -> None:
    """The span and the measurement name the error's class, and no events are counted."""
    cid = new_id()
    store.append(cid, [HELLO])
    with pytest.raises(WrongExpectedVersion):
        store.append(cid, [HELLO], expected_version=NO_STREAM)
    [_, span] = sent.spans("append events")
    assert (StatusCode.ERROR, "WrongExpectedVersion") == (
        span.status.status_code,
        attributes(span)["error.type"],
    )
    assert span.status.description is None
    assert [1] == [point.value for point in sent.points("eventstore.events.appended")]
    assert {None: 1, "WrongExpectedVersion": 1} == {
        point.attributes.get("error.type"): point.count
        for point in sent.points("db.client.operation.duration")
    }


def test_an_append_belongs_to_the_span_around_it(sent: Collector, database_url: str) -> None:
    """Also on an event loop, where a thread writes what many tasks append."""

    async def tell() -> None:
        async with await AsyncEventStore.open(database_url) as store:
            with sent.tracers.get_tracer("product").start_as_current_span("turn"):
                await store.append(new_id(), [HELLO])

    asyncio.run(tell())
    [[turn], [append]] = sent.spans("turn"), sent.spans("append events")
    assert append.parent is not None
    assert turn.context.span_id == append.parent.span_id


def test_an_asynchronous_append_that_fails_is_an_error(sent: Collector, database_url: str) -> None:
    """It is told as the synchronous one is."""

    async def fail() -> None:
        async with await AsyncEventStore.open(database_url) as store:
            await store.append(new_id(), [HELLO], expected_version=7)

    with pytest.raises(WrongExpectedVersion):
        asyncio.run(fail())
    assert ["WrongExpectedVersion"] == [
        attributes(span)["error.type"] for span in sent.spans("append events")
    ]


def test_a_catch_up_is_a_span(sent: Collector, store: EventStore) -> None:
    """It tells conversation, version, and how many events were folded."""
    views, cid = Views(store), new_id()
    store.append(cid, [HELLO, HELLO])
    views.timeline(cid)
    [span] = sent.spans("catch_up")
    assert {
        "eventstore.conversation_id": str(cid),
        "eventstore.version": 2,
        "eventstore.events": 2,
    } == attributes(span)


def test_a_rebuild_has_its_pages_and_its_cut_over(sent: Collector, store: EventStore) -> None:
    """Both are spans within that of the rebuild."""
    store.append(new_id(), [HELLO])
    rebuild(store, ["timeline"])
    [[whole], [page], [cut]] = map(sent.spans, ("rebuild", "rebuild_page", "cut_over"))
    assert ("timeline",) == attributes(whole)["eventstore.projections"]
    assert [whole.context.span_id] * 2 == [
        each.parent and each.parent.span_id for each in (page, cut)
    ]


def test_the_worker_has_the_lag_read(sent: Collector, store: EventStore) -> None:
    """While it runs the gauges tell of each projection what is missing, at any moment."""
    seen: list[dict[str | None, float]] = []

    def after_round(_count: int) -> None:
        seen.append(sent.gauge("eventstore.projection.lag"))

    store.append(new_id(), [HELLO])
    worker.run(store, once=True, on_round=after_round)
    assert dict.fromkeys((each.name for each in PROJECTIONS), 0) == seen[0]
    assert {} == sent.gauge("eventstore.projection.lag")


def test_the_lag_is_that_of_the_log(sent: Collector, store: EventStore) -> None:
    """Without a worker's round it does not read zero, and its age is told beside it."""
    Views(store)
    store.append(new_id(), [HELLO])
    found = {
        (each.gauge, each.attributes.get("eventstore.projection")): each.value
        for each in measure(store, PROJECTIONS)
    }
    assert 1 == found["eventstore.projection.lag", "timeline"]
    assert 0 <= found["eventstore.projection.lag.duration", "timeline"]
    assert ("eventstore.feed.held_back", None) in found


def test_no_lag_is_told_while_nobody_knows(tmp_path: Path) -> None:
    """A database that cannot be read gives no measurement, rather than zero."""
    path = tmp_path / "store.db"
    with EventStore.open(f"sqlite:///{path}") as store:
        store.close()
        path.write_bytes(b"no database" * 1_000)
        assert [] == measure(store, PROJECTIONS)


def test_the_user_and_the_password_are_no_attributes() -> None:
    """Of the URL only the place is told."""
    url = make_url("postgresql://ada:secret@example.org:5433/agents")
    assert {
        "db.system.name": "postgresql",
        "db.namespace": "agents",
        "server.address": "example.org",
        "server.port": 5433,
    } == operations.database(url)


PLAIN = """
import sys
{before}
from eventstore import EventStore, events, new_id
from eventstore.telemetry import operations as telemetry
import projections.worker
with EventStore.open("sqlite://") as store:
    store.append(new_id(), [events.UserMessage.text("hello")])
    projections.worker.run(store, once=True)
print(telemetry._recorder is not None, "opentelemetry" in sys.modules)
"""


def in_a_process(before: str = "", programs: Programs | None = None) -> str:
    """Run the store and the worker in a process of its own; return what it prints."""
    given = ("-c", PLAIN.format(before=before))
    if programs is not None:  # which have imported the product
        done = programs.run(*given)
    else:
        started = [sys.executable, *given]
        done = subprocess.run(started, cwd=ROOT, capture_output=True, text=True, check=False)
    done.check_returncode()
    return done.stdout.strip()


def test_nothing_is_imported_unless_it_is_used() -> None:
    """A process that does not use OpenTelemetry does not load it."""
    assert "False False" == in_a_process()


def test_nothing_is_missed_where_it_is_not_installed() -> None:
    """Everything works without the package."""
    assert "False True" == in_a_process("sys.modules['opentelemetry'] = None")


def test_a_process_without_a_provider_sends_nothing(programs: Programs) -> None:
    """The API alone, which other libraries may have loaded, changes nothing."""
    assert "False True" == in_a_process(
        "import opentelemetry.trace, opentelemetry.metrics", programs
    )


@pytest.mark.parametrize(("of", "kind"), [("trace", "Tracer"), ("metrics", "Meter")])
def test_a_process_with_a_provider_is_found(of: str, kind: str, programs: Programs) -> None:
    """Whoever has set up a provider need not say so."""
    before = f"import opentelemetry.{of} as api, opentelemetry.sdk.{of} as sdk\n"
    assert "True True" == in_a_process(
        f"{before}api.set_{kind.lower()}_provider(sdk.{kind}Provider())", programs
    )


LATE = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from agent_eventstore import Conversation, EventStore, Views
from eventstore.telemetry import operations as telemetry

store, sent = EventStore.open("sqlite://"), InMemorySpanExporter()
conversation = Conversation.start(store)
{before}
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(sent))
trace.set_tracer_provider(provider)
{then}
print(*sorted({{span.name for span in sent.get_finished_spans()}}), sep=", ")
"""


@pytest.mark.parametrize(
    ("before", "then", "names"),
    [
        ("", "with conversation.turn('x'): pass", "append events, invoke_agent"),
        ("", "Views(store).timeline(conversation.id)", "catch_up"),
        ("telemetry.switch_off()", "with conversation.turn('x'): pass", ""),
    ],
)
def test_a_provider_that_comes_after_the_store(
    before: str, then: str, names: str, programs: Programs
) -> None:
    """A module's store is opened before a server's startup sets it up: nothing was ever sent."""
    done = programs.run("-c", LATE.format(before=before, then=then))

    assert (0, names) == (done.returncode, done.stdout.strip()), done.stderr


def test_using_it_without_the_package_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking for it where it is not installed is an error."""
    for name in ("opentelemetry", "eventstore.telemetry.otel"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError):
        operations.use()


class TestLogEvents:
    """Log events: ids, versions, counts and durations."""

    def test_an_append_is_told(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """At the level DEBUG, with conversation, version and duration."""
        caplog.set_level(logging.DEBUG, "eventstore")
        cid = new_id()
        with EventStore.open(f"sqlite:///{tmp_path / 'store.db'}") as store:
            store.append(cid, [HELLO, HELLO])
        [line] = [each for each in caplog.messages if "event='append'" in each]
        assert f"event='append' conversation_id='{cid}' events=2 version=2 duration_ms=" in line

    def test_what_is_slow_is_told(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """An append that takes too long shows at a level where others do not."""
        caplog.set_level(logging.INFO, "eventstore")
        monkeypatch.setattr(operations, "SLOW_S", 0.0)
        with EventStore.open("sqlite://") as store:
            store.append(new_id(), [HELLO])
        assert ["INFO"] == [
            each.levelname for each in caplog.records if "event='slow append'" in each.message
        ]

    def test_an_error_is_told_by_its_class(self, caplog: pytest.LogCaptureFixture) -> None:
        """What it says may quote a payload."""
        caplog.set_level(logging.DEBUG, "eventstore")
        with (
            pytest.raises(ValueError, match="a secret"),
            operations.operation("eventstore", "work"),
        ):
            raise ValueError("a secret")
        [line] = caplog.messages
        assert line.startswith("event='work' error='ValueError' duration_ms=")
