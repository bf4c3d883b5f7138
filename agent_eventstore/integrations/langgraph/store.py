"""`EventStoreStore`: LangGraph's long-term memory; each namespace is a conversation.

Each change of an item is an event. The items of a namespace are folded from its events and cached;
later reads only read new events.
"""

from __future__ import annotations

import asyncio
import math
import sys
from array import array
from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from threading import Event as ThreadEvent
from threading import RLock, Thread
from typing import Any, NamedTuple

from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
    get_text_at_path,
)

from agent_eventstore.integrations.conversation_events import (
    attempts,
    followed,
    keys_with,
    unredacted,
)
from agent_eventstore.integrations.conversation_memory import ConversationMemory
from agent_eventstore.integrations.langgraph.at_url import AtUrl
from agent_eventstore.integrations.langgraph.events import LanggraphItem, LanggraphRenewal
from eventstore import NO_STREAM, AsyncEventStore, EventStore, NewEvent, RecordedEvent
from eventstore.arguments import require_several
from eventstore.database import erase_for
from eventstore.errors import EventStoreError, InvalidEvent, StoreClosed
from eventstore.events import ConversationStart, Payload
from eventstore.events.codec import dumps_json, loads_json
from eventstore.telemetry.log import get_logger
from eventstore.threads import in_thread
from projections.context.compression.search import cosine, embedded

__all__ = [
    "EventStoreStore",
    "Namespace",
    "StoreItems",
    "StoredItem",
    "at_path",
    "fields_of",
    "fits",
    "fulfils",
]


Namespace = tuple[str, ...]


class StoredItem(NamedTuple):
    """An item: the version of its event, its JSON, when it was first and last put, its vectors.

    With a time to live, ``renewed_at`` is when that began.
    """

    version: int
    text: str
    created_at: datetime
    updated_at: datetime
    vectors: tuple[array[float], ...] = ()
    ttl_minutes: float | None = None
    renewed_at: datetime | None = None

    def has_used(self, share: float, now: datetime) -> bool:
        """Whether this share of its time to live is over."""
        if self.ttl_minutes is None or self.renewed_at is None:
            return False
        return (now - self.renewed_at).total_seconds() >= share * 60 * self.ttl_minutes

    @property
    def size(self) -> int:
        """About the bytes that it takes."""
        return len(self.text) + sum(len(each) * each.itemsize for each in self.vectors)


class StoreItems:
    """The items of a namespace by key, up to a version."""

    def __init__(self) -> None:
        self.version, self.chain = 0, b""
        self.current: dict[str, StoredItem] = {}
        self.size = 0  # of the items, in bytes

    def alive(self, now: datetime) -> Iterator[tuple[str, StoredItem]]:
        """Yield the items, with their keys, whose time to live is not over."""
        return ((key, item) for key, item in self.current.items() if not item.has_used(1, now))

    def fold(self, event: RecordedEvent) -> None:
        """Fold the next event."""
        self.version, self.chain, data = event.version, event.chain, event.data
        at = event.recorded_at
        if isinstance(data, LanggraphItem):
            before = self.current.pop(data.key, None)
            self.size -= 0 if before is None else before.size
            if data.value is not None:
                goes_on = before is not None and not before.has_used(1, at)
                item = StoredItem(
                    event.version,
                    dumps_json(data.value),
                    before.created_at if before is not None and goes_on else at,
                    at,
                    tuple(map(_vector, data.vectors or ())),
                    data.ttl_minutes,
                    at,
                )
                self.size += item.size
                self.current[data.key] = item
        elif isinstance(data, LanggraphRenewal):
            for key in self.current.keys() & {*data.keys}:
                self.current[key] = self.current[key]._replace(renewed_at=at)


def _vector(text: str) -> array[float]:
    """Return the vector of a `LanggraphItem`; empty if it is none."""
    found = array("f")
    try:
        found.frombytes(a2b_base64(text))
    except ValueError:
        return array("f")
    if sys.byteorder == "big":
        found.byteswap()
    return found


def _vector_text(vector: array[float]) -> str:
    if sys.byteorder == "big":
        vector = array("f", vector)
        vector.byteswap()
    return b64encode(vector.tobytes()).decode()


def fields_of(namespace: Namespace, key: str, item: StoredItem) -> dict[str, Any]:
    """Return the fields of an `Item`; its value is a new copy."""
    return {
        "namespace": namespace,
        "key": key,
        "value": loads_json(item.text),
        "created_at": item.created_at,
        "updated_at": item.updated_at,
    }


def at_path(value: Any, path: str) -> Any:
    """Return an object's value for a name; ``a.b`` is also the value of ``b`` in ``a``."""
    if isinstance(value, dict) and path not in value and "." in path:
        first, _, rest = path.partition(".")
        return at_path(value.get(first), rest)
    return value.get(path) if isinstance(value, dict) else None


def fits(condition: MatchCondition, namespace: tuple[str, ...]) -> bool:
    """Whether a namespace begins or ends with a path, in which ``*`` matches any label."""
    size = len(condition.path)
    begin = 0 if condition.match_type == "prefix" else max(len(namespace) - size, 0)
    part = namespace[begin : begin + size]
    return len(part) == size and all(
        wanted in ("*", label) for wanted, label in zip(condition.path, part, strict=True)
    )


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda value, wanted: bool(value == wanted),
    "$ne": lambda value, wanted: bool(value != wanted),
    "$gt": lambda value, wanted: bool(value > wanted),
    "$gte": lambda value, wanted: bool(value >= wanted),
    "$lt": lambda value, wanted: bool(value < wanted),
    "$lte": lambda value, wanted: bool(value <= wanted),
}


def fulfils(value: Any, wanted: Any) -> bool:
    """Whether a value matches a filter: equal, by operators, or field by field for an object.

    Raises:
        ValueError: The filter contains an unknown operator.
    """
    if isinstance(wanted, dict) and any(name.startswith("$") for name in wanted):
        for name in wanted:
            if name not in _OPERATORS:
                raise ValueError(f"unknown filter operator {name}: use one of {[*_OPERATORS]}")
        try:
            return all(_OPERATORS[name](value, each) for name, each in wanted.items())
        except TypeError:  # values of different types cannot be ordered
            return False
    if isinstance(wanted, dict):
        return isinstance(value, dict) and all(fulfils(value.get(k), v) for k, v in wanted.items())
    if isinstance(wanted, list | tuple):
        return (
            isinstance(value, list)
            and len(value) == len(wanted)
            and all(map(fulfils, value, wanted))
        )
    return bool(value == wanted)


_KEY = "langgraph.store:"


_NAMESPACES = 256

_UNRENEWED = 0.1
"""The share of an item's time to live after which a read renews it."""

_SWEEP_MINUTES = 5

_log = get_logger("agent_eventstore")


@dataclass(slots=True)
class _BatchReads:
    """What the operations of a batch read with, and the keys whose time to live they renew."""

    now: datetime
    queries: dict[str, array[float]] = field(default_factory=dict)
    due: dict[Namespace, set[str]] = field(default_factory=dict)

    def note(self, op: GetOp | SearchOp, namespace: Namespace, key: str, item: StoredItem) -> None:
        """Note that an operation has read an item."""
        if op.refresh_ttl and item.has_used(_UNRENEWED, self.now):
            self.due.setdefault(namespace, set()).add(key)


class EventStoreStore(AtUrl, BaseStore):
    """A store of items, which are JSON objects identified by namespace and key.

    Safe to share between threads and processes. Without ``index``, a ``query`` and the ``index`` of
    a put are refused.

    An item whose time to live is over is in no answer, and `sweep_ttl` deletes it. A read begins
    that time anew, unless less than a tenth of it has passed: then it writes nothing.

    Args:
        store: The store; a store from `EventStore.for_owner` sees only the items of its tenant or
            user.
        erase: Whether replaced and deleted values are erased; otherwise they stay in the log.
        index: The embedding for the search by meaning, and the fields that it embeds, as for
            LangGraph's own stores; of each text the first 8,000 characters. Vectors are stored with
            the items, once for each put.
        ttl: The time to live of items that are put without one, whether reads renew it, and how
            often `start_ttl_sweeper` sweeps, as for LangGraph's own stores.

    Raises:
        ValueError: The store redacts, and so could not return the items as they were put.
    """

    supports_ttl = True

    def __init__(
        self,
        store: EventStore | AsyncEventStore,
        *,
        erase: bool = False,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        self.store = unredacted(store, "its items as they were")
        self.ttl_config = ttl
        self.erase = erase
        self.embeddings = None if index is None else ensure_embeddings(index.get("embed"))
        chosen: Mapping[str, Any] = index or {}
        # SqliteStore's name for the fields is another than the one that is documented.
        self._fields = [*(chosen.get("fields") or chosen.get("text_fields") or ["$"])]
        self._known: ConversationMemory[StoreItems] = ConversationMemory(_NAMESPACES, newest=True)
        self._lock = RLock()
        self._sweeper: Thread | None = None
        self._ended = ThreadEvent()

    def batch(self, ops: Iterable[Op]) -> list[Any]:
        """Run operations in order, and return the result of each.

        Reads see the state before the batch. The puts of a namespace are one transaction, in which
        the last put of a key wins.

        Raises:
            InvalidNamespaceError: A label of a namespace is empty, is not text, or contains a
                period or NUL.
            NotImplementedError: An operation has an index or a query, but the store has no index.
            InvalidEvent: A value is not JSON, or is larger than an event may be; or a time to live
                is not a finite number.
            EmbeddingFailed: The embedding raised, or did not return a vector for each text;
                nothing was written.
        """
        if self.embeddings is None:
            return self._run([*ops], None, None)
        return self._run([*ops], self.embeddings.embed_documents, self.embeddings.embed_query)

    async def abatch(self, ops: Iterable[Op]) -> list[Any]:
        """Run `batch` in a thread; it finishes even if the caller is cancelled."""
        if (made := self.embeddings) is None:
            return await in_thread(self._run, [*ops], None, None)
        loop = asyncio.get_running_loop()

        def waited(call: Callable[[Any], Coroutine[Any, Any, Any]]) -> Callable[[Any], Any]:
            return lambda value: asyncio.run_coroutine_threadsafe(call(value), loop).result()

        both = waited(made.aembed_documents), waited(made.aembed_query)
        return await in_thread(self._run, [*ops], *both)

    def _run(
        self,
        operations: list[Op],
        embed_documents: Callable[[list[str]], list[list[float]]] | None,
        embed_query: Callable[[str], list[float]] | None,
    ) -> list[Any]:
        vectors: dict[str, array[float]] = {}
        reading = _BatchReads(self.store.clock())
        if embed_documents is not None and embed_query is not None:
            texts = [*dict.fromkeys(text for op in operations for text in self._texts(op))]
            if texts:
                found = embedded(texts, lambda some: embed_documents([*some]))
                vectors = dict(zip(texts, found, strict=True))
            for op in operations:
                if isinstance(op, SearchOp) and op.query:
                    made = embedded([op.query], lambda q: [embed_query(q[0])])
                    [reading.queries[op.query]] = made
        with self._lock:
            answers = [self._read(op, reading) for op in operations]
            self._renew(reading.due)
            puts = [op for op in operations if isinstance(op, PutOp)]
            for namespace in dict.fromkeys(op.namespace for op in puts):
                own = {op.key: op for op in puts if op.namespace == namespace}
                self._put(namespace, own, vectors)
            return answers

    def _texts(self, op: Op) -> list[str]:
        """Return the texts of a put that are embedded."""
        if not isinstance(op, PutOp) or op.value is None or op.index is False:
            return []
        paths = self._fields if op.index is None else op.index
        return [text for path in paths for text in get_text_at_path(op.value, path)]

    def _read(self, op: Op, reading: _BatchReads) -> Any:
        match op:
            case GetOp():
                item = self._items(_valid(op.namespace)).current.get(op.key)
                if item is None or item.has_used(1, reading.now):
                    return None
                reading.note(op, op.namespace, op.key, item)
                return Item(**fields_of(op.namespace, op.key, item))
            case SearchOp():
                return self._search(op, reading)
            case ListNamespacesOp():
                conditions = op.match_conditions or ()
                for each in conditions:
                    _valid(each.path, or_none=True)
                names = [ns for ns in self._namespaces() if all(fits(c, ns) for c in conditions)]
                used = (ns for ns in names if any(self._items(ns).alive(reading.now)))
                depths = sorted({ns[: op.max_depth] for ns in used})
                return depths[op.offset : op.offset + op.limit]
            case PutOp():
                _valid(op.namespace)
                if op.ttl is not None and not math.isfinite(op.ttl):
                    raise InvalidEvent(f"ttl is {op.ttl}: it must be a number", field="ttl")
                if op.index and self.embeddings is None:
                    raise NotImplementedError(
                        "this store has no index: pass index= to EventStoreStore, or put without it"
                    )
                return None
        raise ValueError(f"{op!r} is not an operation of a store")

    def _search(self, op: SearchOp, reading: _BatchReads) -> list[SearchItem]:
        if op.query and self.embeddings is None:
            raise NotImplementedError(
                "this store has no index to search by meaning: pass index= to EventStoreStore"
            )
        prefix, wanted = _valid(op.namespace_prefix, or_none=True), op.filter or {}
        query = reading.queries.get(op.query) if op.query else None
        found = [
            (
                SearchItem(**fields, score=None if query is None else _score(query, item.vectors)),
                item,
            )
            for namespace in self._namespaces(prefix)
            for key, item in self._items(namespace).alive(reading.now)
            if (fields := fields_of(namespace, key, item))
            and all(fulfils(at_path(fields["value"], name), each) for name, each in wanted.items())
        ]
        found.sort(key=lambda pair: pair[0].updated_at, reverse=True)
        if query is not None:  # then those without a vector, the newest first
            found.sort(
                key=lambda pair: -2.0 if pair[0].score is None else pair[0].score, reverse=True
            )
        shown = found[op.offset : op.offset + op.limit]
        for answer, item in shown:
            reading.note(op, answer.namespace, answer.key, item)
        return [answer for answer, _ in shown]

    def _put(
        self,
        namespace: Namespace,
        puts: dict[str, PutOp],
        vectors: Mapping[str, array[float]],
        over_at: datetime | None = None,
    ) -> None:
        """Put items; with ``over_at``, delete those that are over at that time."""
        for attempt in attempts():
            items = self._items(namespace)
            current = items.current
            if over_at is not None:
                current = {key: i for key, i in current.items() if i.has_used(1, over_at)}
            changed = [op for key, op in puts.items() if op.value is not None or key in current]
            if not changed:
                return
            start_events = [] if items.version else [ConversationStart(title="/".join(namespace))]
            events = [
                LanggraphItem(
                    key=each.key,
                    value=each.value,
                    vectors=self._made(each, vectors),
                    ttl_minutes=None if each.value is None else each.ttl,
                )
                for each in changed
            ]
            gone = {current[op.key].version for op in changed if op.key in current}
            with attempt:
                self._write(_key(namespace), [*start_events, *events], gone, items.version)
                return

    def _renew(self, due: Mapping[Namespace, set[str]]) -> None:
        """Begin the time to live of these items anew; a failure harms no read."""
        if self.store.read_only or not (self.ttl_config or {}).get("refresh_on_read", True):
            return
        for namespace, keys in due.items():
            try:
                self.store.append(_key(namespace), [LanggraphRenewal(keys=tuple(sorted(keys)))])
            except EventStoreError as error:
                _log.warning("time to live not renewed", namespace=namespace, why=str(error))

    def sweep_ttl(self) -> int:
        """Delete the items whose time to live is over, and return their number.

        One transaction for each namespace that has any. Another process may sweep at the same time.

        Raises:
            EventStoreError: As of `batch`; what was deleted before stays deleted.
        """
        count = 0
        for namespace in [*self._namespaces()]:
            with self._lock:
                now, current = self.store.clock(), self._items(namespace).current
                over = [key for key, item in current.items() if item.has_used(1, now)]
                self._put(namespace, {key: PutOp(namespace, key, None) for key in over}, {}, now)
            count += len(over)
        return count

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> None:
        """Sweep in a thread, by default every five minutes, until `stop_ttl_sweeper`.

        Does nothing without ``ttl``, like LangGraph's own stores. The thread ends with the store.
        """
        if self.ttl_config is None or (self._sweeper is not None and self._sweeper.is_alive()):
            return
        minutes = sweep_interval_minutes or self.ttl_config.get("sweep_interval_minutes")
        self._ended.clear()
        self._sweeper = Thread(
            target=self._sweeping, args=[60 * (minutes or _SWEEP_MINUTES)], daemon=True
        )
        self._sweeper.start()

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """End the thread of `start_ttl_sweeper`; return whether it ended within ``timeout`` s."""
        self._ended.set()
        if self._sweeper is not None:
            self._sweeper.join(timeout)
        return self._sweeper is None or not self._sweeper.is_alive()

    def _sweeping(self, every_s: float) -> None:
        while not self._ended.wait(every_s):
            try:
                self.sweep_ttl()
            except StoreClosed:
                return
            except EventStoreError as error:
                _log.warning("items not swept", why=str(error))

    def _made(self, op: PutOp, vectors: Mapping[str, array[float]]) -> tuple[str, ...] | None:
        """Return the vectors of a put, for its event; None if it has none."""
        if self.embeddings is None:
            return None
        return tuple(_vector_text(vectors[text]) for text in self._texts(op)) or None

    def _write(self, key: str, events: list[Payload], gone: set[int], version: int) -> None:
        """Append events, and erase what they replace if it is to be erased, in one transaction."""
        new = [NewEvent(each) for each in events]
        if not self.erase or not gone:
            self.store.append(key, new, expected_version=version or NO_STREAM)
            return
        erase_for(
            self.store,
            key,
            lambda _: new,
            reason="replaced or deleted",
            versions=gone,
            expected_version=version,
        )
        self._known.take(key)

    def _namespaces(self, prefix: Namespace = ()) -> Iterator[Namespace]:
        for key in keys_with(self.store, LanggraphItem.type, begins=_key(prefix)):
            namespace = tuple(key.removeprefix(_KEY).split("."))
            if namespace[: len(prefix)] == prefix:
                yield namespace

    def _items(self, namespace: Namespace) -> StoreItems:
        """Return the items of a namespace, reading only new events."""
        key = _key(namespace)
        items = followed(self.store, self.store.stream(key), self._known.get(key) or StoreItems())
        self._known.keep(key, items, items.size)
        return items


def _score(query: array[float], vectors: Sequence[array[float]]) -> float | None:
    """Return the cosine of the vector that is nearest; None without one of the same length."""
    return max((cosine(query, each) for each in vectors if len(each) == len(query)), default=None)


def _key(namespace: Namespace) -> str:
    return _KEY + ".".join(namespace)


def _valid(namespace: Namespace, *, or_none: bool = False) -> Namespace:
    """Return a namespace after checking that its labels can be joined to a key by periods."""
    require_several(namespace=namespace)
    if not namespace and not or_none:
        raise InvalidNamespaceError("a namespace must have at least one label")
    for label in namespace:
        if not isinstance(label, str) or not label or "." in label or "\0" in label:
            raise InvalidNamespaceError(
                f"invalid namespace label {label!r}: a label is text without periods and NUL"
            )
    return tuple(namespace)
