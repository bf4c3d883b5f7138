"""Fencing: a writer that has been overtaken by a newer one appends no more."""

from __future__ import annotations

from uuid import UUID

import pytest

from eventstore import EventStore
from eventstore.errors import ConversationNotFound, WriterFenced
from tests.contract.facade import say, texts


def test_each_writer_gets_the_next_epoch(store: EventStore, cid: UUID) -> None:
    """Epochs count the writers of a conversation, above 32 random bits."""
    store.append(cid, say("1"))

    epochs = [store.raise_writer_epoch(cid), store.raise_writer_epoch(cid)]
    assert [1, 2] == [epoch >> 32 for epoch in epochs]
    assert epochs[1] == store.get(cid).writer_epoch


def test_an_older_writer_is_fenced(store: EventStore, cid: UUID) -> None:
    """The error carries both epochs, and nothing is written."""
    store.append(cid, say("1"), writer_epoch=0)
    newer = store.raise_writer_epoch(cid)

    with pytest.raises(WriterFenced) as caught:
        store.append(cid, say("2"), writer_epoch=0)

    error = caught.value
    assert (cid, 0, newer) == (error.conversation_id, error.epoch, error.current_epoch)
    assert ["1"] == texts(store.read(cid))


def test_the_newest_writer_and_one_without_epoch_go_on(store: EventStore, cid: UUID) -> None:
    """Only who names an epoch is fenced by it."""
    store.append(cid, say("1"))
    epoch = store.raise_writer_epoch(cid)
    store.append(cid, say("2"), writer_epoch=epoch)
    store.append(cid, say("3"))

    assert ["1", "2", "3"] == texts(store.read(cid))


def test_an_epoch_that_nobody_gave_out_creates_no_stream(store: EventStore, cid: UUID) -> None:
    """A stream that does not exist is at epoch 0, and stays absent after the refusal."""
    with pytest.raises(WriterFenced):
        store.append(cid, say("1"), writer_epoch=3)
    with pytest.raises(ConversationNotFound):
        store.get(cid)


def test_epoch_of_an_unknown_conversation(store: EventStore, cid: UUID) -> None:
    """There is nobody to fence."""
    with pytest.raises(ConversationNotFound):
        store.raise_writer_epoch(cid)
