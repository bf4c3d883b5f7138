"""The history of a conversation as the planner reads it: newest first, no further than asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from projections.context.budget import Group

__all__ = ["ERROR", "Past"]

ERROR = "error before the latest user message"
"""What an error that must be sent is, for errors and the ledger."""

_AT_THE_STEP = "latest user message at the last step"


class Past:
    """Groups, newest first.

    Attributes:
        groups: Those that were read so far.
        mandatory: The first and the latest user message, in this order, and an error that the
            latest goes on from.
        standing: What is looked at in every plan, however old: the first user message, and the
            summaries.
    """

    def __init__(
        self,
        newest: Iterator[Group],
        users: Sequence[Group],
        summaries: Sequence[Group] = (),
        error: Group | None = None,
    ) -> None:
        self.groups: list[Group] = []
        self.mandatory = (*users, *(() if error is None else (error,)))
        self.standing = (*users[:1], *summaries)
        self._newest = newest
        self._marked = {group.key: group for group in self.mandatory}
        self._standing = {group.key for group in self.standing}

    def at(self, index: int) -> Group | None:
        """Return a group by its place from the end, the newest being 0; None if there is none."""
        while len(self.groups) <= index:
            group = next(self._newest, None)
            if group is None:
                return None
            self.groups.append(self._marked.get(group.key, group))
        return self.groups[index]

    def labelled(self, group: Group) -> Group:
        """Return a mandatory group with the label that it has now: the latest may be another."""
        label = ERROR if group.kind == "error" else _AT_THE_STEP
        return self._marked.get(group.key) or replace(group, label=label)

    def read_all(self) -> None:
        """Read all groups that there are."""
        while self.at(len(self.groups)) is not None:
            pass

    def size(self, group: Group) -> int:
        """Return the tokens of a group; none for what stands in every plan and always counts."""
        return 0 if group.key in self._standing else group.tokens

    def with_standing(
        self, newest: Sequence[Group], start: int, *, asked: bool = False
    ) -> list[Group]:
        """Return groups oldest first, with what a request at a place would look at in any case.

        Args:
            newest: Groups from the place on, newest first.
            start: The place from the end; a request there knew no newer group.
            asked: But for one, which was a user message, and is sent in any case.
        """
        found = {group.key: group for group in newest}
        if start:
            found |= {group.key: group for group in _mandatory_then(newest, asked=asked)}
        # The latest message of now is looked at only where that of then would have been: what a
        # step came to must not depend on what was said since.
        until = self.groups[start].key if start else None
        present = found.keys() | self._standing
        for group in (*self.standing, *self.mandatory):
            if until is None or (group.key <= until and group.key in present):
                found[group.key] = group
        return [found[key] for key in sorted(found)]


def _mandatory_then(newest: Sequence[Group], *, asked: bool) -> Iterator[Group]:
    """Yield what must have been sent to a request that knew no newer group, with its label.

    The latest user message, unless the request was asked one that is newer than these; and the
    latest error, if it is newer than the latest user message but one.
    """
    users, error = int(asked), False
    for group in newest:
        if group.kind == "error" and not error:
            error = True
            if not (group.label or group.left_out):
                yield replace(group, label=ERROR, yields=True)
        elif group.kind == "user":
            users += 1
            if users == 1 and not (group.label or group.left_out):
                yield replace(group, label=_AT_THE_STEP)
            if users == 2:
                return
