"""The feed of a store that is spread over servers: each server's events in their own order.

A transaction id means something on its own server alone. So each server has an epoch, which a
trigger sets where the row is stored, and a place in the feed is a vector: how far each epoch was
read. A read first asks every server which of its transactions have all ended, its *border*, and
only then, in new snapshots, for the events below: none can still appear there.

Two rules keep it whole while shards move between servers:

- An event whose predecessor is in another epoch waits until that one was passed. Otherwise a
  conversation that has moved would be returned out of order.
- An epoch without a border is passed to its end only if every server has answered and none of them
  has this epoch: then its server is gone, and its events have moved. If a server is silent, or
  the list of servers changes during the read, such epochs wait.

There is no order across conversations. A cursor is ``d2:EPOCH.TX.POSITION.DIGEST:...``; one of a
store that was on a single server (``p2``) stands for the same events.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

from eventstore.errors import InvalidCursor, StoreUnavailable
from eventstore.sql.backend import READABLE_TIME, Nodes

__all__ = ["Vector", "VectorPage", "behind", "end", "gained", "holds", "lag"]
__all__ += ["DIGEST_BYTES", "digest_of", "newest", "page", "parse"]

DIGEST_BYTES = 8
_LAST = 2**63 - 1
_MOST_TRIES = 5
_PART = re.compile("([0-9]{1,10})[.]([0-9]{1,19})[.]([0-9]{1,19})[.]([0-9a-f]{16}|)")
_OLDER = re.compile("p2:([0-9]{1,10}):([0-9]{1,19}):([0-9]{1,19}):([0-9a-f]{16})")
_TIME_SQL = READABLE_TIME.replace("recorded_at", "events.recorded_at")
_COLUMNS = f"""events.position, events.conversation_id, events.version, events.event_id,
    events.type, events.schema_version, {_TIME_SQL},
    CASE WHEN events.salt IS NULL OR EXISTS (SELECT 1 FROM erased_versions AS erased
        WHERE erased.conversation_id = events.conversation_id
        AND events.version BETWEEN erased.first_version AND erased.last_version)
    THEN NULL ELSE events.data::text END, events.meta::text, events.data_digest, events.chain"""  # noqa: S608 - a constant
_EVENT = itemgetter(slice(11))
_VERSION, _TIME, _CHAIN = 2, 6, 10
_PAGE = f"""
    SELECT {_COLUMNS}, events.tx_id::text, prior.epoch, prior.tx_id::text, prior.position
    FROM events LEFT JOIN events AS prior ON prior.conversation_id = events.conversation_id
        AND prior.version = events.version - 1
    WHERE events.epoch = %s AND (events.tx_id, events.position) >= (%s::text::xid8, %s)
        AND events.tx_id < %s::text::xid8
    ORDER BY events.tx_id, events.position LIMIT %s
    """  # noqa: S608 - constants
_AFTER = """
    SELECT conversation_id, tx_id::text, position, chain FROM events
    WHERE epoch = %s AND (tx_id, position) > (%s::text::xid8, %s)
    ORDER BY events.tx_id, position LIMIT %s
    """
_NEWEST = """
    SELECT tx_id::text, position, chain FROM events WHERE epoch = %s AND tx_id < %s::text::xid8
    ORDER BY events.tx_id DESC, position DESC LIMIT 1
    """
_AT = """
    SELECT chain FROM events WHERE epoch = %s AND tx_id = %s::text::xid8 AND position = %s
    """
_NEXT_EPOCH = "SELECT epoch FROM events WHERE epoch > %s ORDER BY epoch LIMIT 1"
_PURGED = "SELECT 1 FROM purges WHERE %s BETWEEN first_position AND last_position LIMIT 1"
_LAG = f"""
    SELECT count(*), min({READABLE_TIME}) FROM events WHERE epoch = %s AND tx_id >= %s::text::xid8
    """  # noqa: S608 - a constant


@dataclass(frozen=True, slots=True)
class _EpochPlace:
    """How far an epoch was read. Without a digest, it does not matter what is there."""

    transaction: int = 0
    position: int = 0
    digest: str = ""

    @property
    def key(self) -> tuple[int, int]:
        return self.transaction, self.position


@dataclass(frozen=True, slots=True)
class Vector:
    """A place in the feed: how far each epoch was read; those that it lacks, not at all."""

    places: Mapping[int, _EpochPlace]

    def __str__(self) -> str:
        """Return the cursor."""
        parts = (
            f"{epoch}.{at.transaction}.{at.position}.{at.digest}"
            for epoch, at in sorted(self.places.items())
        )
        return ":".join(["d2", *parts])

    def at(self, epoch: int) -> _EpochPlace:
        """Return how far an epoch was read."""
        return self.places.get(epoch) or _EpochPlace()

    def moved(self, places: Mapping[int, _EpochPlace]) -> Vector:
        """Return the vector with some epochs read further."""
        return Vector({**self.places, **places})


@dataclass(frozen=True, slots=True)
class VectorPage:
    """Rows of events in the order of `backend.EVENT_COLUMNS`, and the place after them."""

    rows: Sequence[tuple[Any, ...]]
    after: Vector


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An event that is safe to pass, and the place of the one before it in its conversation."""

    row: tuple[Any, ...]
    epoch: int
    place: _EpochPlace
    prior: tuple[int, tuple[int, int]] | None


def parse(cursor_text: str | None, older_epochs: Callable[[int], Iterable[int]]) -> Vector:
    """Return the place of a cursor.

    Args:
        cursor_text: The cursor; None for the beginning.
        older_epochs: Returns the epochs below one, which a cursor of a single server has passed.

    Raises:
        InvalidCursor: It is no cursor of such a feed.
    """
    if cursor_text is None:
        return Vector({})
    if (older := _OLDER.fullmatch(str(cursor_text))) is not None:
        epoch, transaction, position = map(int, older.groups()[:3])
        nowhere = not position and int(older[4], 16)
        if nowhere or max(epoch, transaction, position) > _LAST:
            raise InvalidCursor(cursor_text)
        passed = {each: _EpochPlace(_LAST, _LAST) for each in older_epochs(epoch)}
        own = _EpochPlace(transaction, position, older[4] if position else "")
        return Vector(passed | {epoch: own} if epoch else {})
    prefix, *parts = str(cursor_text).split(":")
    found = [_PART.fullmatch(part) for part in parts]
    if prefix != "d2" or not all(found):
        raise InvalidCursor(cursor_text)
    places = {
        int(each[1]): _EpochPlace(int(each[2]), int(each[3]), each[4]) for each in found if each
    }
    if len(places) < len(parts) or any(max(at.key) > _LAST for at in places.values()):
        raise InvalidCursor(cursor_text)
    return Vector(places)


def page(nodes: Nodes, after: Vector, limit: int) -> VectorPage:
    """Return the next events that are safe to pass, at most ``limit`` but for one rare case.

    Transactions that append to several conversations while their shards move may leave events
    that can only be passed together; then there are more.

    Raises:
        InvalidCursor: An event that the place names is not there.
        StoreUnavailable: Servers were added or removed during each of several attempts.
    """
    size = limit + 1  # each epoch begins with the event at its place, to see that it is there
    while True:
        lists, is_whole = _candidates(nodes, after, size)
        some = _closed(lists, after)
        if any(some.values()) or is_whole or not limit:
            break
        size *= 2  # what the first events wait for is further on
    chosen = _merged(some, after, limit) if limit else []
    places = {each.epoch: each.place for each in chosen}
    return VectorPage([each.row for each in chosen], after.moved(places))


def _candidates(nodes: Nodes, after: Vector, size: int) -> tuple[dict[int, list[_Candidate]], bool]:
    """Return each epoch's next events below its border, and whether these are all."""
    for _ in range(_MOST_TRIES):
        members = nodes.members()
        lists, is_whole = {}, True
        for epoch, border in _borders(nodes, after).items():
            place = after.at(epoch)
            if place.transaction >= _LAST:
                continue
            values = [epoch, str(place.transaction), place.position, str(border), size]
            rows = sorted(nodes.select(_PAGE, values), key=lambda row: (int(row[11]), row[0]))
            is_whole &= len(rows) < size
            found = [_candidate(row, epoch) for row in rows[:size]]
            if place.position and found and found[0].place.key == place.key:
                if place.digest and found[0].place.digest != place.digest:
                    raise InvalidCursor(str(after))
                del found[0]
            elif place.digest and border and not _is_purged(nodes, place):
                raise InvalidCursor(str(after))
            lists[epoch] = found
        if nodes.members() == members:
            return lists, is_whole
    raise StoreUnavailable("the feed", "servers were added or removed meanwhile: try again")


def _borders(nodes: Nodes, after: Vector) -> dict[int, int]:
    """Return how far each epoch may be read: below a transaction."""
    # In this order: an epoch that is there by now and that no server has afterwards is closed.
    known = {*after.places, *_epochs(nodes)}
    answers = nodes.borders()
    borders = dict(answer for answer in answers if answer is not None)
    if len(borders) < sum(answer is not None for answer in answers):
        raise StoreUnavailable("the feed", "two servers have the same epoch")
    closed = 0 if None in answers else _LAST
    return {**dict.fromkeys(known, closed), **borders}


def _epochs(nodes: Nodes) -> list[int]:
    """Return the epochs of all events, by one step of an index for each."""
    found: list[int] = []
    while True:
        last = found[-1] if found else 0
        rows = nodes.select(_NEXT_EPOCH, [last])
        if not rows:
            return found
        found.append(min(row[0] for row in rows))


def _candidate(row: Sequence[Any], epoch: int) -> _Candidate:
    transaction, prior_epoch, prior_transaction, prior_position = row[11:]
    prior = None
    if prior_epoch is not None:
        prior = prior_epoch, (int(prior_transaction), prior_position)
    place = _EpochPlace(int(transaction), row[0], digest_of(row[_CHAIN]))
    return _Candidate(_EVENT(row), epoch, place, prior)


def _closed(lists: Mapping[int, list[_Candidate]], after: Vector) -> dict[int, list[_Candidate]]:
    """Return the longest beginning of each list whose predecessors are all in it, or passed."""
    some = {epoch: [*found] for epoch, found in lists.items()}
    while True:
        reached = {epoch: found[-1].place.key for epoch, found in some.items() if found}
        is_cut = False
        for epoch, found in some.items():
            for number, each in enumerate(found):
                if each.prior is None or each.prior[0] == epoch:
                    continue
                other, key = each.prior
                if key > max(after.at(other).key, reached.get(other, (0, 0))):
                    del found[number:]
                    is_cut = True
                    break
        if not is_cut:
            return some


def _merged(some: Mapping[int, list[_Candidate]], after: Vector, limit: int) -> list[_Candidate]:
    """Return events of all epochs, about in order of time, each after its predecessor."""
    passed = {epoch: after.at(epoch).key for epoch in {*some, *after.places}}
    left = {epoch: found for epoch, found in some.items() if found}
    following = dict.fromkeys(left, 0)
    merged: list[_Candidate] = []
    while left and len(merged) < limit:
        heads = [found[following[epoch]] for epoch, found in left.items()]
        ready = [each for each in heads if _is_ready(each, passed)]
        if not ready:  # They wait for each other: by version, each follows its predecessor.
            rest = [each for epoch, found in left.items() for each in found[following[epoch] :]]
            return merged + _in_one(rest)
        first = min(ready, key=_moment)
        merged.append(first)
        passed[first.epoch] = first.place.key
        following[first.epoch] += 1
        if following[first.epoch] == len(left[first.epoch]):
            del left[first.epoch]
    return merged


def _is_ready(each: _Candidate, passed: Mapping[int, tuple[int, int]]) -> bool:
    if each.prior is None or each.prior[0] == each.epoch:
        return True
    return each.prior[1] <= passed.get(each.prior[0], (0, 0))


def _in_one(rest: Sequence[_Candidate]) -> list[_Candidate]:
    """Return events by version, with the place after all of them at the last of each epoch."""
    last: dict[int, _EpochPlace] = {}
    for each in rest:
        last[each.epoch] = max(last.get(each.epoch, each.place), each.place, key=lambda at: at.key)
    ordered = sorted(rest, key=lambda each: each.row[_VERSION])
    return [replace(each, place=last[each.epoch]) for each in ordered]


def _moment(each: _Candidate) -> tuple[datetime, int]:
    return each.row[_TIME] or datetime.min.replace(tzinfo=UTC), each.place.position


def end(nodes: Nodes) -> Vector:
    """Return the place after all events that are safe to pass now."""
    nothing = Vector({})
    places = {
        epoch: found
        for epoch, border in _borders(nodes, nothing).items()
        if (found := _newest(nodes, epoch, border)) is not None
    }
    return Vector(places)


def _newest(nodes: Nodes, epoch: int, border: int = _LAST) -> _EpochPlace | None:
    rows = nodes.select(_NEWEST, [epoch, str(border)])
    found = [_EpochPlace(int(row[0]), row[1], digest_of(row[2])) for row in rows]
    return max(found, key=lambda at: at.key, default=None)


def behind(nodes: Nodes, after: Vector, limit: int) -> tuple[list[Any], Vector, Vector, bool]:
    """Return the conversations of the next visible events, and what `feed.Behind` says of them.

    Reads up to ``limit`` events of each epoch, also those that are not safe to pass.
    """
    streams: list[Any] = []
    seen: dict[int, _EpochPlace] = {}
    safe: dict[int, _EpochPlace] = {}
    more = False
    for epoch, border in _borders(nodes, after).items():
        place = after.at(epoch)
        values = [epoch, str(place.transaction), place.position, limit]
        rows = sorted(nodes.select(_AFTER, values), key=lambda row: (int(row[1]), row[2]))[:limit]
        more |= len(rows) == limit
        for stream, transaction, position, chain in rows:
            streams.append(stream)
            seen[epoch] = _EpochPlace(int(transaction), position, digest_of(chain))
            if int(transaction) < border:
                safe[epoch] = seen[epoch]
    return list(dict.fromkeys(streams)), after.moved(seen), after.moved(safe), more


def gained(nodes: Nodes, after: Vector) -> list[Any]:
    """Return every conversation with visible events after a place."""
    streams: dict[Any, None] = {}
    statement = (
        "SELECT DISTINCT conversation_id FROM events "
        "WHERE epoch = %s AND (tx_id, position) > (%s::text::xid8, %s)"
    )
    for epoch in {*after.places, *_epochs(nodes)}:
        place = after.at(epoch)
        rows = nodes.select(statement, [epoch, str(place.transaction), place.position])
        streams.update(dict.fromkeys(row[0] for row in rows))
    return [*streams]


def holds(nodes: Nodes, at: Vector) -> bool:
    """Whether the log still has all events that a place names, apart from those purged."""
    for epoch, place in at.places.items():
        if not place.digest:
            continue
        rows = nodes.select(_AT, [epoch, str(place.transaction), place.position])
        if [digest_of(row[0]) for row in rows] != [place.digest] and not (
            not rows and _is_purged(nodes, place)
        ):
            return False
    return True


def newest(nodes: Nodes, before: Any) -> Any:
    """Return a value that changes whenever `page` or `behind` may return something new.

    The newest event of each epoch is enough once it is safe to pass. Until then, as long as borders
    move, so does the value.
    """
    heads = {epoch: _newest(nodes, epoch) for epoch in _epochs(nodes)}
    if before and before[0] == heads and before[1] is None:
        return before
    borders = _borders(nodes, Vector({}))
    is_safe = all(
        at is None or at.transaction < borders[epoch]
        for epoch, at in heads.items()
        if epoch in borders
    )
    return heads, None if is_safe else borders


def lag(nodes: Nodes) -> tuple[int, datetime | None]:
    """Return how many committed events are not safe to pass, and when the first was recorded."""
    count, oldest = 0, None
    for epoch, border in _borders(nodes, Vector({})).items():
        for some, first in nodes.select(_LAG, [epoch, str(border)]) if border < _LAST else ():
            count += some
            oldest = min(filter(None, (oldest, first)), default=None)
    return count, oldest


def _is_purged(nodes: Nodes, place: _EpochPlace) -> bool:
    return bool(nodes.select(_PURGED, [place.position]))


def digest_of(chain: Any) -> str:
    """Return the first bytes of a chain value; a damaged row's may be anything."""
    found = bytes(chain[:DIGEST_BYTES]).hex() if isinstance(chain, bytes | memoryview) else ""
    return found.ljust(2 * DIGEST_BYTES, "0")
