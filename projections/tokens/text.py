"""Counting texts for a model: the number of tokens, and how accurate that number is.

The model's name determines an encoding and, if the encoding is a guess, the margin of error.

Any text can be counted, whatever its content and length. tiktoken's pattern overflows on a run of
about a million spaces, so long texts are split: at places where both bundled encodings certainly
end a token or, in a run without such a place, anywhere, which makes the count inexact. Only
long-established characters count as letters here, so that the result does not depend on the Unicode
version of the pattern engine.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from projections.errors import EncodingNotBundled
from projections.tokens.ranks import BUNDLED, encoding

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot

ESTIMATING_ENCODING = "o200k_base"

# The harmony encoding has the ranks and the pattern of o200k_base. It only has more control tokens,
# which never occur in counted text.
_SAME_RANKS = {"o200k_harmony": "o200k_base"}

# No offline tokenizer exists for current Claude models. They are reported to use 10 to 30 % more
# tokens than o200k_base for prose and code, and the newest generation up to a third more than the
# previous ones. Other models are closer. Usage reported by a provider narrows both margins.
_MARGINS = {"claude": 0.5, "anthropic": 0.5}
_MARGIN_OF_OTHERS = 0.3

WINDOW = 2_048  # characters; the search for a cut starts here
HARD_LIMIT = 4_096  # characters; a piece ends here at the latest
_SLACK_OF_HARD_CUT = 4  # tokens
_SLACK_OF_SURROGATE = 1  # tokens; how providers handle a surrogate is unknown

_LETTER = r"A-Za-z\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5\uac00-\ud7a3"
# No apostrophe: o200k_base keeps "'s" with its word. Marks also stay with their letter.
_AFTER_LETTER = r"\x00-&(-@\[-`{-\x7f\u3001\u3002\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f"
# No slash after a line end: o200k_base keeps it with the punctuation before.
_CERTAIN_END = re.compile(rf"[{_LETTER}](?=[{_AFTER_LETTER}])|\S(?= )|\n(?=[^\s/])")
_LONE_SURROGATE = re.compile(
    "[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]"
)


@dataclass(frozen=True, slots=True)
class Count:
    """A number of tokens and its largest expected relative error.

    >>> Count(100) + Count(100, exact=False, margin=0.5)
    Count(tokens=200, exact=False, margin=0.25)
    >>> sum([Count(3), Count(4)], Count(0))
    Count(tokens=7, exact=True, margin=0.0)

    Attributes:
        tokens: The count, or its best estimate.
        exact: Whether the provider is known to arrive at the same number.
        margin: Largest expected error as a fraction of ``tokens``; 0.0 if exact.
    """

    tokens: int
    exact: bool = True
    margin: float = 0.0

    def __add__(self, other: Count) -> Count:
        """Return the sum; its margin is the average of the margins, weighted by tokens."""
        if self.exact and other.exact:
            return Count(self.tokens + other.tokens)
        return self.plus([(other.tokens, other.margin)])

    def plus(self, estimates: Iterable[tuple[int, float]]) -> Count:
        """Return the sum with estimates, given as tokens and margin to avoid an object for each."""
        tokens, margin = self.tokens, self.margin
        for more, error in estimates:
            whole = tokens + more
            margin = (tokens * margin + more * error) / whole if whole else max(margin, error)
            tokens = whole
        return Count(tokens, exact=False, margin=margin)

    @property
    def at_most(self) -> int:
        """The largest number of tokens within the margin, for budgets that must not be exceeded."""
        return math.ceil(self.tokens * (1 + self.margin))

    def loosened(self, slack: int) -> Count:
        """Return the count with a margin wider by ``slack`` tokens in either direction."""
        if not slack:
            return self
        margin = self.margin + slack / max(self.tokens, 1)
        return Count(self.tokens, exact=False, margin=min(margin, 1.0))


def resolve(model: str) -> tuple[str, float]:
    """Return a model's encoding and the relative margin of counting with it (0.0: exact).

    Raises:
        EncodingNotBundled: tiktoken knows the encoding, but this package does not bundle it.
    """
    if model in BUNDLED:
        return model, 0.0
    encoding = _encoding_in_tiktoken(model)
    if encoding is None:
        return ESTIMATING_ENCODING, _margin(model)
    encoding = _SAME_RANKS.get(encoding, encoding)
    if encoding not in BUNDLED:
        raise EncodingNotBundled(encoding, tuple(sorted(BUNDLED)))
    return encoding, 0.0


def _encoding_in_tiktoken(model: str) -> str | None:
    from tiktoken import model as models  # only processes that count tokens need it

    encodings = {*models.MODEL_TO_ENCODING.values(), *models.MODEL_PREFIX_TO_ENCODING.values()}
    for name in names_of(model):
        if name in encodings:
            return name
        try:
            return models.encoding_name_for_model(name)
        except KeyError:
            continue
    return None


@cache
def listed_models() -> DataSnapshot:
    """Return the models, windows and prices bundled with `genai_prices`.

    Does not use its current snapshot: a program may have set one that updates itself, and a rebuild
    would then give different results.
    """
    from genai_prices.data import providers  # takes a while
    from genai_prices.data_snapshot import DataSnapshot

    return DataSnapshot(providers=providers, from_auto_update=False)


def names_of(model: str) -> list[str]:
    """Return the names by which a model may be listed: its own, then those without its vendor.

    >>> names_of("OpenAI/GPT-4o:free")
    ['OpenAI/GPT-4o:free', 'openai/gpt-4o:free', 'gpt-4o:free', 'gpt-4o']
    """
    lowered = model.strip().lower()
    bare = lowered.rpartition("/")[2]
    plain = bare if bare.startswith("ft:") else bare.partition(":")[0]
    return list(dict.fromkeys(name for name in (model, lowered, bare, plain) if name))


def _margin(model: str) -> float:
    lowered = model.lower()
    return next((m for part, m in _MARGINS.items() if part in lowered), _MARGIN_OF_OTHERS)


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Counts texts as a model does, or estimates the count.

    Attributes:
        name: The encoding, ``cl100k_base`` or ``o200k_base``: the key of stored counts. An
            estimating tokenizer has the same name and the same tokens as an exact one, so both
            share stored counts: store ``plain`` counts, and ``widen`` them after reading.
        exact: Whether the model is known to use this encoding.
        margin: Relative error of the estimate; 0.0 if exact.
    """

    name: str
    exact: bool = True
    margin: float = 0.0

    def count(self, text: str) -> Count:
        """Return the token count of a text; special tokens in it count as ordinary text."""
        whole, replaced = _without_lone_surrogates(text)
        encode = encoding(self.name).encode_ordinary
        if not replaced and len(whole) <= WINDOW:
            return self.widen(Count(len(encode(whole))))
        tokens = hard_cuts = 0
        for piece, certain in pieces(whole):
            tokens += len(encode(piece))
            hard_cuts += not certain
        slack = hard_cuts * _SLACK_OF_HARD_CUT + replaced * _SLACK_OF_SURROGATE
        return self.widen(Count(tokens).loosened(slack))

    @property
    def plain(self) -> Tokenizer:
        """The exact tokenizer of the same encoding; its counts may be stored under ``name``."""
        return self if self.exact else Tokenizer(self.name)

    def widen(self, count: Count) -> Count:
        """Return a plain count with this tokenizer's margin added."""
        if self.exact:
            return count
        return Count(count.tokens, exact=False, margin=count.margin + self.margin)


@lru_cache(maxsize=256)
def tokenizer_for(model: str) -> Tokenizer:
    """Return the tokenizer of a model.

    OpenAI's names resolve as in tiktoken, including prefixes and fine-tuned models. The names of
    the bundled encodings stand for themselves. Any other model (Claude, Gemini, DeepSeek, Llama, an
    unknown name) is estimated with ``o200k_base``, inexact, with the margin of its family.

    Raises:
        EncodingNotBundled: The name resolves to an encoding that tiktoken knows but this package
            does not bundle; the error lists the choices.
    """
    name, margin = resolve(model)
    return Tokenizer(name, exact=margin == 0.0, margin=margin)


def require_tokenizer(name: str) -> None:
    """Refuse the name of a tokenizer that is neither an encoding nor a known model.

    A model that nobody has listed yet is estimated (see ``tokenizer_for``), but who names a
    tokenizer wants that one, and a typing error would pass for a new model.

    Raises:
        EncodingNotBundled: The encoding is not bundled.
        ValueError: The name is unknown.
    """
    estimated = tokenizer_for(name).exact is False
    if not estimated or any(part in name.lower() for part in _MARGINS):
        return
    for known in names_of(name):
        with suppress(LookupError):
            listed_models().find_provider_model(known, None, None, None)
            return
    choices = ", ".join(sorted(BUNDLED))
    raise ValueError(
        f"the tokenizer {name!r} is unknown: name an encoding ({choices}) or a listed model"
    )


def count_text(text: str, model: str) -> Count:
    """Return the token count of a text for a model.

    >>> count_text("tiktoken is great!", "gpt-4")
    Count(tokens=6, exact=True, margin=0.0)

    Raises:
        EncodingNotBundled: See ``tokenizer_for``.
    """
    return tokenizer_for(model).count(text)


def pieces(text: str, window: int = WINDOW, limit: int = HARD_LIMIT) -> Iterator[tuple[str, bool]]:
    """Yield a text in parts, each with whether a token certainly ends at the part's end."""
    start = 0
    while len(text) - start > window:
        cut = _CERTAIN_END.search(text, start + window - 1, start + limit)
        end = cut.end() if cut else start + limit
        if end >= len(text):
            break
        yield text[start:end], cut is not None
        start = end
    yield text[start:], True


def _without_lone_surrogates(text: str) -> tuple[str, int]:
    """Return the text with surrogate pairs joined, and how many lone surrogates were replaced."""
    if text.isascii() or not _has_surrogates(text):
        return text, 0
    paired, replaced = _LONE_SURROGATE.subn("\N{REPLACEMENT CHARACTER}", text)
    return paired.encode("utf-16-le", "surrogatepass").decode("utf-16-le"), replaced


def _has_surrogates(text: str) -> bool:
    # Faster than searching for them, which matters for texts of a megabyte.
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


__all__ = ["EstimatedColumn", "WrittenTexts", "estimated_tokens"]

_MODEL = "o200k_base"  # The encoding used if the model's own is unknown.


class WrittenTexts(NamedTuple):
    """Texts whose tokens are to be counted, and the model that wrote them."""

    pieces: Sequence[str]
    model: str | None


class _Texts(Protocol):
    def count_text(self, text: str, tokenizer: Tokenizer) -> Count: ...


@dataclass(frozen=True, slots=True)
class EstimatedColumn:
    """Replaces `Written` texts in the column of this name with their token count."""

    name: str

    def fill(self, values: dict[str, Any], counter: _Texts) -> None:
        """Count the texts that a fold has put into the column."""
        written = values.get(self.name)
        if isinstance(written, WrittenTexts):
            tokenizer = _tokenizer(written.model)
            counts = (counter.count_text(each, tokenizer) for each in written.pieces if each)
            values[self.name] = sum(count.tokens for count in counts)


def estimated_tokens(pieces: Iterable[str], model: str | None) -> int:
    """Return this package's token count of texts; for an unknown model, with a default encoding."""
    tokenizer = _tokenizer(model)
    return sum(tokenizer.count(piece).tokens for piece in pieces if piece)


@lru_cache(maxsize=256)
def _tokenizer(model: str | None) -> Tokenizer:
    try:
        return tokenizer_for(model or _MODEL)
    except EncodingNotBundled:
        return tokenizer_for(_MODEL)
