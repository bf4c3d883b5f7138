"""What counts of texts promise: tiktoken's own ranks, honest estimates, no fatal input."""

from __future__ import annotations

import base64
import hashlib
import importlib
import threading
from importlib import resources

import pytest

from projections.errors import EncodingNotBundled
from projections.tokens import Count, Tokenizer, count_text, ranks, text, tokenizer_for

CL100K = Tokenizer("cl100k_base")
O200K = Tokenizer("o200k_base")


class TestCount:
    """Adding counts keeps what is known about their error."""

    def test_exact_counts_add_up_to_an_exact_count(self) -> None:
        """Nothing is lost when both parts are exact."""
        assert Count(7) == Count(3) + Count(4)

    def test_the_margin_of_a_sum_is_weighted_by_tokens(self) -> None:
        """A small doubtful part makes a large sum only a little doubtful."""
        assert Count(400, exact=False, margin=0.125) == Count(300) + Count(100, False, 0.5)

    def test_an_empty_estimate_stays_an_estimate(self) -> None:
        """No tokens at all do not turn an estimate into knowledge."""
        assert Count(0, False, 0.3) == Count(0) + Count(0, False, 0.3)

    def test_at_most_includes_the_margin_and_rounds_up(self) -> None:
        """A budget must hold even if the estimate is as wrong as stated."""
        assert 13 == Count(10, exact=False, margin=0.25).at_most

    def test_a_loosened_count_is_at_most_twice_wrong(self) -> None:
        """A margin above one would say nothing."""
        assert Count(2, exact=False, margin=1.0) == Count(2).loosened(50)


class TestModels:
    """Names resolve as tiktoken resolves them, or to an estimate."""

    @pytest.mark.parametrize(
        ("model", "encoding"),
        [
            ("gpt-4", "cl100k_base"),
            ("gpt-4-0613", "cl100k_base"),
            ("gpt-3.5-turbo", "cl100k_base"),
            ("gpt-35-turbo-16k", "cl100k_base"),
            ("ft:gpt-3.5-turbo:org::id", "cl100k_base"),
            ("text-embedding-3-small", "cl100k_base"),
            ("gpt-4o", "o200k_base"),
            ("gpt-4o-mini-2024-07-18", "o200k_base"),
            ("gpt-4.1-nano", "o200k_base"),
            ("gpt-5-mini", "o200k_base"),
            ("o3-mini", "o200k_base"),
            ("ft:gpt-4o-mini:org::id", "o200k_base"),
            ("gpt-oss-120b", "o200k_base"),
            ("cl100k_base", "cl100k_base"),
            ("o200k_base", "o200k_base"),
        ],
    )
    def test_openai_names_are_exact(self, model: str, encoding: str) -> None:
        """OpenAI's models, dated, tuned or deployed on Azure, get their own encoding."""
        assert Tokenizer(encoding, exact=True, margin=0.0) == tokenizer_for(model)

    @pytest.mark.parametrize(
        "model",
        ["claude-sonnet-4-5", "gemini-2.5-pro", "deepseek-chat", "llama-3.3-70b", "qwen3", "x", ""],
    )
    def test_other_names_are_estimated_with_a_margin(self, model: str) -> None:
        """A model that nobody can count offline gets an estimate that says so."""
        counted = count_text("some text", model)
        assert (2, False, True) == (counted.tokens, counted.exact, 0.25 < counted.margin <= 0.5)

    @pytest.mark.parametrize("name", ["p50k_base", "r50k_base", "gpt2", "p50k_edit", "davinci"])
    def test_a_known_encoding_without_ranks_names_the_choices(self, name: str) -> None:
        """Asking for ranks that are not carried along says which are."""
        with pytest.raises(EncodingNotBundled, match="cl100k_base or o200k_base"):
            tokenizer_for(name)

    def test_estimates_share_stored_counts_with_exact_tokenizers(self) -> None:
        """A plain count, stored under the encoding's name, widens to the estimate when read."""
        estimating = tokenizer_for("claude-sonnet-4-5")
        stored = estimating.plain.count("shared by every model")
        assert O200K.count("shared by every model") == stored
        assert estimating.count("shared by every model") == estimating.widen(stored)


class TestBundledRanks:
    """The package data are tiktoken's ranks, to the byte."""

    @pytest.mark.parametrize("name", ranks.BUNDLED)
    def test_regenerated_text_has_the_hash_that_tiktoken_checks(self, name: str) -> None:
        """Packing loses nothing of the published file."""
        lines = (
            base64.b64encode(token) + f" {rank}\n".encode()
            for rank, token in enumerate(ranks.tokens_of(name))
        )
        assert ranks.BUNDLED[name].text_sha256 == hashlib.sha256(b"".join(lines)).hexdigest()

    @pytest.mark.parametrize("name", ranks.BUNDLED)
    def test_encodings_are_those_of_the_installed_tiktoken(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A release of tiktoken that changes hash, pattern or special tokens is noticed."""
        published = importlib.import_module("tiktoken_ext.openai_public")
        asked: list[str] = []

        def without_download(_address: str, expected_hash: str) -> dict[bytes, int]:
            asked.append(expected_hash)
            return {}

        monkeypatch.setattr(published, "load_tiktoken_bpe", without_download)
        theirs = published.ENCODING_CONSTRUCTORS[name]()
        ours = ranks.BUNDLED[name]
        assert [ours.text_sha256] == asked
        assert ours.pattern == theirs["pat_str"]
        assert ours.special_tokens == theirs["special_tokens"]

    def test_damaged_data_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A file that differs from the released one is never counted with."""
        damaged = ranks.Bundled(
            packed_sha256="0" * 64, text_sha256="", pattern="", special_tokens={}
        )
        monkeypatch.setitem(ranks.BUNDLED, "cl100k_base", damaged)
        with pytest.raises(RuntimeError, match="cl100k_base are damaged"):
            ranks.tokens_of("cl100k_base")

    def test_packing_is_reversible(self) -> None:
        """What is packed comes back in the same order, a token of every length included."""
        tokens = [b"x" * length for length in range(1, 256)]
        assert tokens == ranks.unpack(ranks.pack(tokens))

    def test_the_licence_is_carried_along(self) -> None:
        """Redistribution requires the notice beside the data."""
        notice = resources.files("projections.tokens") / "data" / "NOTICE.md"
        assert "Copyright (c) 2022 OpenAI, Shantanu Jain" in notice.read_text(encoding="utf-8")

    def test_threads_share_one_encoding(self) -> None:
        """An encoding that many threads ask for first is built once."""
        ranks._encodings.clear()
        found: list[object] = []
        threads = [
            threading.Thread(target=lambda: found.append(ranks.encoding("cl100k_base")))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (4, 1) == (len(found), len({id(encoding) for encoding in found}))


class TestTexts:
    """Any text is counted, and a doubtful count says so."""

    @pytest.mark.parametrize(
        ("words", "cl100k", "o200k"),
        [
            ("", 0, 0),
            ("tiktoken is great!", 6, 6),
            ("antidisestablishmentarianism", 6, 6),
            ("2 + 2 = 4", 7, 7),
            ("お誕生日おめでとう", 9, 8),
        ],
    )
    def test_published_examples(self, words: str, cl100k: int, o200k: int) -> None:
        """OpenAI's cookbook shows these texts token by token."""
        assert (Count(cl100k), Count(o200k)) == (CL100K.count(words), O200K.count(words))

    def test_special_tokens_count_as_ordinary_text(self) -> None:
        """A user who writes a control token neither raises an error nor gets a discount."""
        assert Count(7) == CL100K.count("<|endoftext|>")

    @pytest.mark.parametrize("tokenizer", [CL100K, O200K], ids=lambda t: t.name)
    def test_a_million_blanks_are_counted(self, tokenizer: Tokenizer) -> None:
        """In one piece this run overflows o200k_base's pattern, in a panic: not an Exception."""
        counted = tokenizer.count(" " * 1_000_000)
        assert not counted.exact
        assert pytest.approx(7_813, rel=counted.margin) == counted.tokens

    @pytest.mark.parametrize("tokenizer", [CL100K, O200K], ids=lambda t: t.name)
    @pytest.mark.parametrize(
        "unit", ["a", "\n", "\0", "-", "0", "漢", "😀", "\u0301", "\ud800", "\udc00\ud800"]
    )
    def test_a_run_of_anything_is_an_estimate(self, unit: str, tokenizer: Tokenizer) -> None:
        """Runs without a place to cut are counted, and do not claim to be exact."""
        counted = tokenizer.count(unit * (2 * text.HARD_LIMIT))
        assert not counted.exact
        assert text.HARD_LIMIT // 64 < counted.tokens <= 8 * text.HARD_LIMIT

    def test_long_ordinary_text_is_exact(self) -> None:
        """Cutting at certain places costs nothing: counts of paragraphs add up."""
        paragraph = "It's 12 o'clock, said the fox; 漢字，かな。 x = f(1)/2\n\n"
        whole = paragraph * 2_000
        assert len(whole) > 2 * text.HARD_LIMIT
        assert Count(2_000 * O200K.count(paragraph).tokens) == O200K.count(whole)

    def test_a_lone_surrogate_counts_as_its_replacement(self) -> None:
        """Text that no provider accepts is still counted, as an estimate."""
        counted = O200K.count("left \ud83d right")
        expected = O200K.count("left \N{REPLACEMENT CHARACTER} right").tokens
        assert (expected, False) == (counted.tokens, counted.exact)

    def test_a_surrogate_pair_is_the_character(self) -> None:
        """An emoji that came in two halves counts as the emoji, exactly."""
        assert O200K.count("hi 😀😀") == O200K.count("hi \ud83d\ude00\ud83d\ude00")

    def test_a_run_without_boundary_is_cut_hard_at_the_limit(self) -> None:
        """Only where no certain place is found is a piece cut at the limit, and marked."""
        assert [("aaaa", False), ("aa b", True)] == list(text.pieces("aaaaaa b", 3, 4))

    def test_a_text_that_ends_at_the_limit_is_not_cut(self) -> None:
        """The end of the text is not a hard cut."""
        assert [("aaaa", True)] == list(text.pieces("aaaa", 3, 4))
