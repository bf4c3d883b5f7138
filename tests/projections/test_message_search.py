"""Search over all conversations: languages, phrases, owners, erasure, and hostile text."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text as sql

from eventstore import EventStore, new_id
from eventstore import events as e
from projections import Views
from projections.engine import generations
from projections.search import finding
from projections.search.message_search import SEARCH
from projections.search.words import snippet_of, terms_of, words_of
from projections.upkeep import compare, rebuild
from tests.projections.support import everything, live_of

SAID = {
    "english": "The quick brown fox jumps over the lazy dog",
    "german": "Die Straße führt über die Brücke",
    "chinese": "我想預訂東京都的酒店，明天出發",
    "japanese": "明日の天気は晴れでしょう。ラーメンを食べたい",
    "korean": "한국어를 배우고 싶어요",
    "thai": "ฉันชอบกินข้าวผัด",
    "hindi": "मुझे हिन्दी सीखनी है",
    "arabic": "أريد أن أتعلم اللغة العربية",
    "russian": "Ёлка стоит в лесу",
    "code": "call user_id = get_user(42) in main.py, see e-mail ada@example.com",
    "emoji": "party 🎉 time",
}


def tell(store: EventStore, text: str, *, user: str | None = None, tenant: str | None = None):  # type: ignore[no-untyped-def]
    """Append a conversation of one message, and return its id."""
    cid = new_id()
    store.append(cid, [e.UserMessage.text(text)], user_id=user, tenant_id=tenant)
    return cid


@pytest.mark.parametrize(
    ("query", "language"),
    [
        ("fox", "english"),
        ("FOX quick", "english"),
        ('"brown fox"', "english"),
        ("jum*", "english"),
        ("strasse", "german"),
        ("brucke", "german"),
        ("東京", "chinese"),
        ("酒店", "chinese"),
        ("發", "chinese"),
        ("京", "chinese"),
        ("東京都的酒店", "chinese"),
        ("天気", "japanese"),
        ("ﾗｰﾒﾝ", "japanese"),
        ("한국어", "korean"),
        ("ข้าวผัด", "thai"),
        ("हिन्दी", "hindi"),
        ("العربية", "arabic"),
        ("ёлка", "russian"),
        ("елка", "russian"),
        ("user_id", "code"),
        ("main.py", "code"),
        ("ada@example.com", "code"),
        ("42", "code"),
        ("party time", "emoji"),
    ],
)
def test_words_are_found_in_any_language(
    store: EventStore, views: Views, query: str, language: str
) -> None:
    """And nothing but the message that holds them."""
    told = {language: tell(store, text) for language, text in SAID.items()}
    [hit] = views.search(query)
    assert (told[language], 1, "user") == (hit.conversation_id, hit.version, hit.role)
    assert hit.marks
    assert SAID[language].startswith(hit.snippet)


@pytest.mark.parametrize("query", ['"fox brown"', "fox cat", "ox", "京東", "的東", '"quick fox"'])
def test_what_is_not_there_is_not_found(store: EventStore, views: Views, query: str) -> None:
    """Words in another order, only one of two, the inside of a word."""
    for text in SAID.values():
        tell(store, text)
    assert [] == views.search(query)


def test_the_best_comes_first(store: EventStore, views: Views) -> None:
    """A message that is about the word stands above one that names it in passing."""
    passing = tell(store, "invoice " + "something else entirely " * 20)
    about = tell(store, "invoice invoice invoice")
    assert [about, passing] == [hit.conversation_id for hit in views.search("invoice")]
    assert [about] == [hit.conversation_id for hit in views.search("invoice", limit=1)]


def test_a_search_is_of_one_owner(store: EventStore, views: Views) -> None:
    """Whatever characters an owner's id has."""
    hostile = 'ann" OR words:\0x'
    ann, bob = tell(store, "hello", user=hostile, tenant="t1"), tell(store, "hello", user="bob")
    assert {ann, bob} == {hit.conversation_id for hit in views.search("hello")}
    assert [ann] == [hit.conversation_id for hit in views.search("hello", user_id=hostile)]
    assert [ann] == [
        hit.conversation_id for hit in views.search("hello", user_id=hostile, tenant_id="t1")
    ]
    assert [bob] == [hit.conversation_id for hit in views.search("hello", user_id="bob")]
    assert [] == views.search("hello", user_id="bob", tenant_id="t1")
    assert [] == views.search("u" + b"bob".hex())


def test_a_hit_tells_where_it_stands(store: EventStore, views: Views) -> None:
    """Title, role, version, and the words marked in a part of the text."""
    cid, long = new_id(), "lorem ipsum " * 2_000
    answer = e.AssistantMessage.of(f"{long} the Zanzibar archipelago {long}")
    store.append(cid, [e.ConversationStart(title="Islands"), e.UserMessage.text("hi"), answer])
    [hit] = views.search('"zanzibar archipelago"')
    assert ("Islands", "assistant", 3) == (hit.title, hit.role, hit.version)
    assert "**Zanzibar** **archipelago**" in hit.marked()
    assert len(hit.snippet) <= 160
    [title] = views.search("islands")
    assert ("title", "**Islands**") == (title.role, title.marked())


def test_a_message_of_many_pieces_is_found_once(store: EventStore, views: Views) -> None:
    """However many of its pieces have the word; the next message is found too."""
    cid = new_id()
    store.append(cid, [e.UserMessage.text("needle " * 20_000), e.UserMessage.text("a needle")])
    assert {1, 2} == {hit.version for hit in views.search("needle", limit=2)}


def test_a_message_of_very_many_pieces_crowds_no_other_out(store: EventStore, views: Views) -> None:
    """Even if most of its pieces rank above the others."""
    cid, long = new_id(), "needle " * 100_000
    store.append(cid, [e.UserMessage.text(f"a needle {'hay ' * 200}") for _ in range(2)])
    store.append(cid, [e.UserMessage.text(long)])
    assert {1, 2, 3} == {hit.version for hit in views.search("needle", limit=3)}


def test_messages_of_another_branch_crowd_no_other_out(
    store: EventStore, views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where only the newest matches are ranked, those that cannot be found do not count."""
    monkeypatch.setattr(finding, "_RANKED", 3)
    cid, other = tell(store, "one apple"), new_id()
    store.append(other, [e.UserMessage.text(f"apple {number}") for number in range(5)])
    gone = (e.VersionRange(first=1, last=5),)
    switched = e.BranchSwitch(
        reason="edit", kind="message", after=0, left=5, turn=1, withdrawn=gone
    )
    store.append(other, [switched, e.UserMessage.text("a pear")])
    assert [cid] == [hit.conversation_id for hit in views.search("apple")]


def test_a_withdrawn_message_is_not_found(store: EventStore, views: Views) -> None:
    """Neither when it was indexed before the retraction, nor when it was not."""
    cid = new_id()
    store.append(cid, [e.UserMessage.text("apple"), e.UserMessage.text("apple pear")])
    assert 2 == len(views.search("apple"))
    store.append(cid, [e.Retraction(versions=(e.VersionRange(first=1, last=1),))])
    assert [2] == [hit.version for hit in views.search("apple")]
    rebuild(store, ["search"])
    assert [2] == [hit.version for hit in views.search("apple")]
    assert compare(store, ["search"]).ok


def test_a_conversation_is_found_by_the_title_that_it_has_now(
    store: EventStore, views: Views
) -> None:
    """Not by one that it had before; a fork has its own title, or its parent's."""
    cid = new_id()
    store.append(cid, [e.ConversationStart(title="Old harbour"), e.UserMessage.text("hello")])
    assert [(cid, 1)] == [(hit.conversation_id, hit.version) for hit in views.search("harbour")]
    store.append(cid, [e.ConversationUpdate(title="Norway trip")])
    store.append(cid, [e.ConversationUpdate(archived=True)])
    named = store.fork(cid, title="Svalbard").conversation_id
    [hit] = views.search("Norway")
    assert (cid, 3, "title", "Norway trip", "Norway trip") == (
        hit.conversation_id,
        hit.version,
        hit.role,
        hit.snippet,
        hit.title,
    )
    assert [named] == [hit.conversation_id for hit in views.search("Svalbard")]
    assert [] == views.search("harbour")
    assert compare(store, ["search"]).ok


def test_a_title_is_found_although_a_retraction_covers_it(store: EventStore, views: Views) -> None:
    """Neither undoing a turn nor leaving a branch takes the title from the conversation."""
    withdrawn, left = new_id(), new_id()
    gone = (e.VersionRange(first=1, last=2),)
    for cid, word in ((withdrawn, "one"), (left, "two")):
        start = e.ConversationStart(title=f"Harbour {word}")
        store.append(cid, [start, e.UserMessage.text(f"Harbour {word}")])
    store.append(withdrawn, [e.Retraction(versions=gone)])
    switched = e.BranchSwitch(
        reason="edit", kind="message", after=0, left=2, turn=1, withdrawn=gone
    )
    store.append(left, [switched])
    for word in ("one", "two"):
        [hit] = views.search(f"harbour {word}")
        assert (1, "title", f"Harbour {word}") == (hit.version, hit.role, hit.title)
    store.append(withdrawn, [e.ConversationUpdate(title="Norway")])
    assert [] == views.search("harbour one")


def test_an_erased_message_leaves_the_index(store: EventStore, views: Views) -> None:
    """The others stay; no table of the database has the word any more, nor has SQLite's file."""
    cid = new_id()
    secret = "xylophonist"
    store.append(cid, [e.UserMessage.text(f"I am a {secret}"), e.UserMessage.text("and a baker")])
    other = tell(store, "a baker too")
    rebuild(store, ["search"])
    assert [1] == [hit.version for hit in views.search(secret)]
    store.erase(cid, versions=[1], reason="asked")
    assert [] == views.search(secret)
    assert {cid, other} == {hit.conversation_id for hit in views.search("baker")}
    assert not [name for name, rows in everything(store).items() if secret in "".join(rows)]
    if store.engine.dialect.name == "sqlite":
        file = Path(str(store.engine.url.database))
        store.close()
        held = b"".join(each.read_bytes() for each in file.parent.glob(f"{file.name}*"))
        assert secret.encode() not in held


def test_the_index_follows_every_way_of_writing(store: EventStore, views: Views) -> None:
    """Rows that are caught up, rebuilt in bulk, and read after a vacuum."""
    cids = [tell(store, f"number {number} apple", user="ann") for number in range(30)]
    assert 30 == len(views.search("apple", user_id="ann", limit=50))
    store.erase(cids[0], reason="asked")
    store.vacuum()
    rebuild(store, ["search"])
    store.vacuum()
    assert {*cids[1:]} == {
        hit.conversation_id for hit in views.search("apple", user_id="ann", limit=50)
    }
    assert [cids[7]] == [hit.conversation_id for hit in views.search("7 apple")]
    late = tell(store, "number 30 apple", user="ann")
    assert [late] == [hit.conversation_id for hit in views.search("30 apple")]
    store.erase(cids[7], reason="asked")
    assert {*cids[1:7], *cids[8:], late} == {
        hit.conversation_id for hit in views.search("apple", user_id="ann", limit=50)
    }


@pytest.mark.parametrize(
    "query",
    [
        "",
        " ",
        "\0",
        '"',
        '""',
        '"""',
        "*",
        "-",
        "'; DROP TABLE events; --",
        "words:apple",
        "owner:x",
        "NEAR(a b)",
        "a AND OR NOT",
        "{words} : apple",
        "^apple",
        "apple +",
        "!@#$%^&*()",
        "a:* & | ! <-> b",
        "\\ ' \\'",
        "\ud800 lone",
        "🎉",
        "%s :x ?",
        "x" * 1_000_000,
        "\uffff" * 100,
        '"apple' * 1_000,
        " ".join(f"w{number}" for number in range(10_000)),
        "\u0301\u0301",
        "\u200d\u200c",
        "ﷺ" * 500,
    ],
)
def test_hostile_queries_find_nothing_and_raise_nothing(
    store: EventStore, views: Views, query: str
) -> None:
    """What is not a word is passed over, and no operator of a database comes through."""
    tell(store, "pineapple juice")
    assert [] == views.search(query)
    assert [] == views.search(query, user_id=f"u{query[:99]}", tenant_id=f"t{query[:99]}")


def test_hostile_messages_are_indexed(store: EventStore, views: Views) -> None:
    """A megabyte without a blank, words longer than a database takes, escapes, lone surrogates."""
    cid = new_id()
    texts = ["x" * 1_000_000, "東" * 300_000, "a\0b \ud800 c", "'" * 99 + "\\", "\u0301" * 5_000]
    store.append(cid, [e.UserMessage.text(text) for text in [*texts, "findable"]])
    assert [6] == [hit.version for hit in views.search("findable")]
    assert [1] == [hit.version for hit in views.search("x" * 100)]
    assert [2] == [hit.version for hit in views.search("東東東")]
    assert compare(store, ["search"]).ok


def test_a_read_only_store_searches_in_memory(store: EventStore, views: Views) -> None:
    """What is not in the index yet is found as it is on the primary."""
    old = tell(store, "apple old", user="ann")
    views.search("apple")
    new = tell(store, "apple new", user="ann")
    url = store.engine.url.render_as_string(hide_password=False)
    with EventStore.open(url, read_only=True) as reader:
        found = Views(reader).search("apple", user_id="ann")
        assert {old, new} == {hit.conversation_id for hit in found}


def test_words_are_the_same_wherever_a_text_is_cut() -> None:
    """What stands between words does not count, nor do case, width and accents."""
    assert "the cafe s strasse 12" == words_of("The Café's  STRAẞE_12!")
    assert "東京 京都 都 abc" == words_of("東京都、ABC")
    [term] = terms_of("東京都ABC")
    assert (("東京", "京都", "都", "abc"), False) == (term.words, term.prefix)


def test_a_snippet_marks_what_was_found() -> None:
    """Also within a script without blanks, and where case folding changes the length."""
    found = snippet_of("我想去東京都玩", terms_of("東京"))
    assert [("東京")] == [found.text[first:last] for first, last in found.marks]
    found = snippet_of("Die STRAẞE hier", terms_of("strasse"))
    assert ["STRAẞE"] == [found.text[first:last] for first, last in found.marks]


def test_a_store_of_one_owner_finds_its_own(store: EventStore, views: Views) -> None:
    """Users of the same name in two tenants, or in none, are never one; nor are their lists."""
    told = {tenant: tell(store, "hello", user="ann", tenant=tenant) for tenant in ("t1", None)}
    for tenant, cid in told.items():
        own = Views(store.for_owner(tenant_id=tenant, user_id="ann"))
        assert [cid] == [hit.conversation_id for hit in own.search("hello")]
        assert [cid] == [entry.conversation_id for entry in own.conversations()]
        assert [cid] == [entry.conversation_id for entry in own.conversations(status="open")]


def test_postgresql_indexes_the_words_of_a_rebuild_last_and_leaves_none_unsorted(
    postgres_url: str,
) -> None:
    """Nobody reads the index until then; those who search must not go through a list."""
    index = sql("SELECT to_regclass(:name)")
    options = sql("SELECT reloptions FROM pg_class WHERE oid = CAST(:name AS regclass)")
    left = sql("SELECT gin_clean_pending_list(:name)")
    with EventStore.open(postgres_url) as store:
        cid = tell(store, "the quick brown fox")
        assert [cid] == [hit.conversation_id for hit in Views(store).search("fox")]
        with store.writing() as connection:
            begun = generations.start_building(connection, SEARCH, None)
            name = {"name": f"ix_message_words_g{begun.number}_tokens"}
            assert connection.execute(index, name).scalar_one() is None

        rebuild(store, ["search"])

        assert begun.number == live_of(store, SEARCH).number
        with store.writing() as connection:
            assert ["fastupdate=off"] == connection.execute(options, name).scalar_one()
            assert 0 == connection.execute(left, name).scalar_one()  # pages of such lists
        assert [cid] == [hit.conversation_id for hit in Views(store).search("fox")]
