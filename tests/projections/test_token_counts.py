"""Each message is tokenized once for an encoding: counts outlive rows and generations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import func, select

from eventstore import EventStore, new_id
from eventstore import events as e
from projections import Views
from projections.catalogue import PROJECTIONS
from projections.engine.catch_up import catch_up
from projections.engine.generations import start_building
from projections.reading import MOST_UNSAVED
from projections.tokens import Tokenizer, count_message
from projections.tokens import counts as token_counts
from projections.tokens import text as tokens_text
from projections.tokens.counts import TABLE, TokenCounts
from projections.upkeep import compare, rebuild
from tests.projections.support import converse, everything, read_all_views, statements, stored

pytestmark = pytest.mark.exhaustive_when("postgresql")

O200K = Tokenizer("o200k_base")
MESSAGE = {"role": "user", "content": "counted once"}


@contextmanager
def no_tokenizing() -> Iterator[None]:
    """Make every attempt to tokenize within the block an error."""

    def refuse(name: str) -> None:
        raise AssertionError(f"something was tokenized with {name}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens_text, "encoding", refuse)
        yield


def unreported(store: EventStore) -> UUID:
    """Append a conversation whose answers come without usage, for models of both encodings."""
    cid = new_id()
    for model in ("gpt-4", "gpt-4o"):
        invocation = e.Invocation(provider="openai", model=model)
        answer = e.AssistantMessage.of(f"an answer of {model}", invocation=invocation)
        store.append(cid, [e.UserMessage.text(f"a question to {model}"), answer])
    return cid


def kept(store: EventStore, cid: UUID) -> int:
    """Return how many counts are stored of a conversation."""
    query = select(func.count()).where(TABLE.c.conversation_id == cid)
    with store.reading() as connection:
        return int(connection.execute(query).scalar_one())


class TestRebuilds:
    """What was counted when an event was first folded is not counted for a new generation."""

    def test_a_rebuild_does_not_tokenize(self, store: EventStore, views: Views) -> None:
        """All rows come out equal, estimates of unreported usage included."""
        cids = [converse(store, 3), unreported(store)]
        for cid in cids:
            read_all_views(views, cid)
        before = [stored(store, cid) for cid in cids]
        with no_tokenizing():
            rebuild(store)
        assert before == [stored(store, cid) for cid in cids]
        assert compare(store).ok

    def test_a_rebuild_keeps_what_it_counted_itself(self, store: EventStore) -> None:
        """Conversations that nobody has read are tokenized by the first rebuild, not the second."""
        cids = [converse(store, 2), unreported(store)]
        rebuild(store)
        before = [stored(store, cid) for cid in cids]
        with no_tokenizing():
            rebuild(store)
        assert before == [stored(store, cid) for cid in cids]

    def test_a_long_conversation_is_not_tokenized_again(
        self, store: EventStore, views: Views, cid: UUID, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where not all counts are read ahead, those that are missing are looked up."""
        monkeypatch.setattr(token_counts, "_MOST_LOADED", 3)
        store.append(cid, [e.UserMessage.text(f"message {number}") for number in range(9)])
        views.context(cid)
        assert 9 == kept(store, cid)
        with no_tokenizing():
            rebuild(store, ["context"])
            assert 9 == len(views.context(cid).messages)

    def test_the_past_is_not_tokenized_again(
        self, store: EventStore, views: Views, cid: UUID
    ) -> None:
        """A view of an earlier version folds in memory, and takes the counts from the table."""
        store.append(cid, [e.UserMessage.text("first"), e.UserMessage.text("second")])
        now = views.context(cid)
        with no_tokenizing():
            assert now.messages[:1] == views.context(cid, at=1).messages

    def test_a_read_only_store_does_not_tokenize_again(
        self, database_url: str, store: EventStore, views: Views, cid: UUID
    ) -> None:
        """A tail that another generation has folded is not counted by the replica's reader."""
        store.append(cid, [e.UserMessage.text("first"), e.UserMessage.text("second")])
        with store.writing() as connection:
            other = start_building(connection, PROJECTIONS[2], None)
            catch_up(connection, [other], cid)
        # What every request is told in the same words is counted once a process.
        store.append(warm := new_id(), [e.UserMessage.text("any other")])
        views.context(warm, max_tokens=1_000)
        with EventStore.open(database_url, read_only=True) as replica:
            reader = Views(replica)
            with no_tokenizing():
                assert 2 == len(reader.context(cid, max_tokens=1_000).messages)

    def test_a_comparison_counts_anew(self, store: EventStore, views: Views, cid: UUID) -> None:
        """A wrong count is found, since the fresh fold does not believe the table."""
        store.append(cid, [e.UserMessage.text("counted wrongly")])
        views.context(cid)
        with store.writing() as connection:
            connection.execute(TABLE.update().values(tokens=999))
        rebuild(store, ["context"])
        assert ["tokens"] == [found.column for found in compare(store, ["context"]).differences]


class TestOtherEncodings:
    """Rows hold the counts of one encoding; those of another are kept beside them."""

    def test_a_second_build_does_not_tokenize(
        self, store: EventStore, views: Views, cid: UUID
    ) -> None:
        """What a read counts for another model is stored, and serves the next."""
        store.append(cid, [e.UserMessage.text("hello"), e.AssistantMessage.of("world")])
        first = views.context(cid, model="gpt-4")
        with no_tokenizing():
            again = Views(store).context(cid, model="gpt-4")
        assert first == again

    def test_a_read_that_has_nothing_to_fold_stores_its_counts(
        self, store: EventStore, views: Views, cid: UUID
    ) -> None:
        """Also a read that began without the right to write."""
        store.append(cid, [e.UserMessage.text("hello")])
        views.context(cid)
        assert 1 == kept(store, cid)
        views.context(cid, model="gpt-4")
        assert 2 == kept(store, cid)

    def test_a_rebuild_keeps_them(self, store: EventStore, views: Views) -> None:
        """The counts belong to the conversation, not to a generation's rows."""
        cid = converse(store, 3)
        before = views.context(cid, model="gpt-4")
        rebuild(store)
        with no_tokenizing():
            assert before == views.context(cid, model="gpt-4")

    def test_only_what_is_new_is_counted(
        self, store: EventStore, views: Views, cid: UUID, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A further message costs its own tokens, for another encoding as well."""
        store.append(cid, [e.UserMessage.text("old"), e.AssistantMessage.of("older")])
        views.context(cid, model="gpt-4")
        store.append(cid, [e.UserMessage.text("new")])
        counted: list[Any] = []

        def noting(message: Any, tokenizer: Tokenizer) -> Any:
            counted.append((message["content"], tokenizer.name))
            return count_message(message, tokenizer)

        monkeypatch.setattr(token_counts, "count_message", noting)
        views.context(cid, model="gpt-4")
        assert [("new", "o200k_base"), ("new", "cl100k_base")] == counted


class TestErasure:
    """Nothing that was made of an erased text is left, its length in tokens included."""

    def test_no_count_is_left(self, store: EventStore, views: Views) -> None:
        """Neither of the rows' encoding nor of another one; other conversations keep theirs."""
        cid, other = converse(store, 2), converse(store, 1)
        for each in (cid, other):
            views.context(each, model="gpt-4")
        left = kept(store, other)
        store.erase(cid, reason="asked for")
        assert (0, left) == (kept(store, cid), kept(store, other))
        assert left > 0

    def test_a_read_that_was_overtaken_stores_nothing(
        self, store: EventStore, views: Views, cid: UUID, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What a read has counted is not stored when an erasure came between."""
        store.append(cid, [e.UserMessage.text("hello")])
        views.context(cid)
        on_driver = store._driver_transaction

        def erased_first(**options: Any) -> Any:
            if options.get("write"):
                monkeypatch.setattr(store, "_driver_transaction", on_driver)
                store.erase(cid, reason="asked for")
            return on_driver(**options)

        monkeypatch.setattr(store, "_driver_transaction", erased_first)
        views.context(cid, model="gpt-4")
        assert 0 == kept(store, cid)

    def test_a_store_without_the_table_can_be_erased(self, store: EventStore, cid: UUID) -> None:
        """A database that no projection has been installed in has no counts to lose."""
        store.append(cid, [e.UserMessage.text("hello")])
        assert (1,) == store.erase(cid, reason="asked for").versions


class TestTheTable:
    """What is stored, and what it costs."""

    def test_equal_texts_have_different_digests(self, store: EventStore, views: Views) -> None:
        """Who knows a text cannot tell in which other conversation it stands."""
        for _ in range(2):
            stream = new_id()
            store.append(stream, [e.UserMessage.text("the same")])
            views.context(stream)
        with store.reading() as connection:
            digests = connection.execute(select(TABLE.c.digest)).scalars().all()
        assert (2, 2) == (len(digests), len(set(digests)))

    def test_a_turn_asks_for_no_counts(self, store: EventStore, views: Views, cid: UUID) -> None:
        """New messages are new: a catch-up looks for none of them, and writes what it counted."""
        store.append(cid, [e.UserMessage.text("hello")])
        views.context(cid)
        with statements(store) as seen:
            for number in range(MOST_UNSAVED):
                store.append(cid, [e.AssistantMessage.of(f"world {number}")])
                views.context(cid)
        about = [sql.split()[0] for sql in seen if "token_counts" in sql]
        assert {"INSERT"} == {*about}

    def test_an_older_store_is_given_the_table(
        self, database_url: str, store: EventStore, views: Views, cid: UUID
    ) -> None:
        """Projections that were installed before the table was known go on, and get it."""
        store.append(cid, [e.UserMessage.text("hello")])
        with store.writing() as connection:
            TABLE.drop(connection)
        with EventStore.open(database_url) as newer:
            assert 1 == len(Views(newer).context(cid).messages)
            assert 1 == kept(newer, cid)

    def test_a_replica_of_an_older_primary_can_be_read(
        self, database_url: str, store: EventStore, views: Views, cid: UUID
    ) -> None:
        """Without the table everything is counted, and nothing fails."""
        store.append(cid, [e.UserMessage.text("hello")])
        with store.writing() as connection:
            TABLE.drop(connection)
        with EventStore.open(database_url, read_only=True) as replica:
            assert 1 == len(Views(replica).context(cid, model="gpt-4").messages)

    def test_it_holds_no_text(self, store: EventStore, views: Views, cid: UUID) -> None:
        """A digest, a number and a margin are all that is kept of a message."""
        store.append(cid, [e.UserMessage.text("Zanzibar")])
        views.context(cid)
        assert [] == [row for row in everything(store)["token_counts"] if "Zanzibar" in row]


class TestMemo:
    """The counts in memory, without a database."""

    def test_a_message_is_counted_once(self) -> None:
        """The second question is answered from memory, whatever the order of the keys."""
        counts = TokenCounts()
        first = counts.count(MESSAGE, O200K)
        with no_tokenizing():
            assert first == counts.count(dict(reversed(MESSAGE.items())), O200K)

    def test_encodings_are_told_apart(self) -> None:
        """Each encoding has its own count."""
        counts, message = TokenCounts(), {"role": "user", "content": "お誕生日おめでとう"}
        cl100k = Tokenizer("cl100k_base")
        assert [count_message(message, each) for each in (O200K, cl100k)] == [
            counts.count(message, each) for each in (O200K, cl100k)
        ]

    def test_an_estimate_shares_the_plain_count(self) -> None:
        """A margin is added when a count is read, and never kept."""
        counts, estimating = TokenCounts(), Tokenizer("o200k_base", exact=False, margin=0.3)
        plain = counts.count(MESSAGE, O200K)
        with no_tokenizing():
            assert estimating.widen(plain) == counts.count(MESSAGE, estimating)

    def test_a_text_is_not_a_message(self) -> None:
        """The same words cost more within a request."""
        counts = TokenCounts()
        assert O200K.count("hi") == counts.count_text("hi", O200K)
        assert count_message({"content": "hi"}, O200K) == counts.count({"content": "hi"}, O200K)

    def test_without_an_active_one_nothing_is_remembered(self) -> None:
        """A pure fold in a test counts plainly."""
        token_counts.count(MESSAGE, O200K)
        with no_tokenizing(), pytest.raises(AssertionError, match="was tokenized"):
            token_counts.count(MESSAGE, O200K)

    def test_a_lone_surrogate_is_remembered(self) -> None:
        """What no database would take as text has a digest all the same."""
        counts, message = TokenCounts(), {"role": "user", "content": "half \ud83d"}
        first = counts.count(message, O200K)
        with no_tokenizing():
            assert first == counts.count(message, O200K)
