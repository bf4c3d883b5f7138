"""`EventStoreStore`: LangGraph's long-term memory; each namespace is a conversation.

Each change of an item is an event. The items of a namespace are folded from its events and cached;
later reads only read new events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from threading import RLock
from typing import Any, NamedTuple

from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    SearchItem,
    SearchOp,
)

from agent_eventstore.integrations.conversation_events import (
    attempts,
    followed,
    keys_with,
    unredacted,
)
from agent_eventstore.integrations.conversation_memory import ConversationMemory
from agent_eventstore.integrations.langgraph.events import LanggraphItem
from eventstore import NO_STREAM, AsyncEventStore, EventStore, NewEvent, RecordedEvent
from eventstore.arguments import require_several
from eventstore.database import erase_for
from eventstore.events import ConversationStart, Payload
from eventstore.events.codec import dumps_json, loads_json
from eventstore.threads import in_thread

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
    """An item: the version of its event, its JSON, and when it was first and last put."""

    version: int
    text: str
    created_at: datetime
    updated_at: datetime


class StoreItems:
    """The items of a namespace by key, up to a version."""

    def __init__(self) -> None:
        self.version, self.chain = 0, b""
        self.current: dict[str, StoredItem] = {}
        self.size = 0  # of the items' JSON, in characters

    def fold(self, event: RecordedEvent) -> None:
        """Fold the next event."""
        self.version, self.chain, data = event.version, event.chain, event.data
        if isinstance(data, LanggraphItem):
            before, at = self.current.pop(data.key, None), event.recorded_at
            self.size -= 0 if before is None else len(before.text)
            if data.value is not None:
                created = at if before is None else before.created_at
                text = dumps_json(data.value)
                self.size += len(text)
                self.current[data.key] = StoredItem(event.version, text, created, at)


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


class EventStoreStore(BaseStore):
    """A store of items, which are JSON objects identified by namespace and key.

    Safe to share between threads and processes. It has no semantic search: a ``query`` and an
    ``index`` are refused, and so is a time to live.

    Args:
        store: The store; a store from `EventStore.for_owner` sees only the items of its tenant or
            user.
        erase: Whether replaced and deleted values are erased; otherwise they stay in the log.

    Raises:
        ValueError: The store redacts, and so could not return the items as they were put.
    """

    def __init__(self, store: EventStore | AsyncEventStore, *, erase: bool = False) -> None:
        self.store = unredacted(store, "its items as they were")
        self.erase = erase
        self._known: ConversationMemory[StoreItems] = ConversationMemory(_NAMESPACES, newest=True)
        self._lock = RLock()

    def batch(self, ops: Iterable[Op]) -> list[Any]:
        """Run operations in order, and return the result of each.

        Reads see the state before the batch. The puts of a namespace are one transaction, in which
        the last put of a key wins.

        Raises:
            InvalidNamespaceError: A label of a namespace is empty, is not text, or contains a
                period or NUL.
            NotImplementedError: An operation has a time to live, an index or a query.
            InvalidEvent: A value is not JSON, or is larger than an event may be.
        """
        with self._lock:
            operations = [*ops]
            found = [self._read(op) for op in operations]
            puts = [op for op in operations if isinstance(op, PutOp)]
            for namespace in dict.fromkeys(op.namespace for op in puts):
                self._put(namespace, {op.key: op for op in puts if op.namespace == namespace})
            return found

    async def abatch(self, ops: Iterable[Op]) -> list[Any]:
        """Run `batch` in a thread; it finishes even if the caller is cancelled."""
        return await in_thread(self.batch, [*ops])

    def _read(self, op: Op) -> Any:
        match op:
            case GetOp():
                item = self._items(_valid(op.namespace)).current.get(op.key)
                return None if item is None else Item(**fields_of(op.namespace, op.key, item))
            case SearchOp():
                return self._search(op)
            case ListNamespacesOp():
                conditions = op.match_conditions or ()
                for each in conditions:
                    _valid(each.path, or_none=True)
                names = [ns for ns in self._namespaces() if all(fits(c, ns) for c in conditions)]
                depths = sorted({ns[: op.max_depth] for ns in names if self._items(ns).current})
                return depths[op.offset : op.offset + op.limit]
            case PutOp():
                _valid(op.namespace)
                if op.ttl is not None or op.index:
                    raise NotImplementedError(
                        "this store has no time to live and no index: put without ttl= and index="
                    )
                return None
        raise ValueError(f"{op!r} is not an operation of a store")

    def _search(self, op: SearchOp) -> list[SearchItem]:
        if op.query:
            raise NotImplementedError("this store has no semantic search: use filter=, not query=")
        prefix, wanted = _valid(op.namespace_prefix, or_none=True), op.filter or {}
        found = [
            SearchItem(**fields)
            for namespace in self._namespaces(prefix)
            for key, current in self._items(namespace).current.items()
            if (fields := fields_of(namespace, key, current))
            and all(fulfils(at_path(fields["value"], name), each) for name, each in wanted.items())
        ]
        found.sort(key=lambda item: item.updated_at, reverse=True)
        return found[op.offset : op.offset + op.limit]

    def _put(self, namespace: Namespace, puts: dict[str, PutOp]) -> None:
        for attempt in attempts():
            items = self._items(namespace)
            current = items.current
            changed = [op for key, op in puts.items() if op.value is not None or key in current]
            if not changed:
                return
            start_events = [] if items.version else [ConversationStart(title="/".join(namespace))]
            events = [LanggraphItem(key=each.key, value=each.value) for each in changed]
            gone = {current[op.key].version for op in changed if op.key in current}
            with attempt:
                self._write(_key(namespace), [*start_events, *events], gone, items.version)
                return

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
