"""From the name of a model to an encoding, and to the error of the count if that is a guess."""

from __future__ import annotations

from tiktoken.model import (
    MODEL_PREFIX_TO_ENCODING,
    MODEL_TO_ENCODING,
    encoding_name_for_model,
)

from eventstore.errors import EncodingNotBundled
from eventstore.tokens.ranks import BUNDLED

ESTIMATING_ENCODING = "o200k_base"

# The harmony encoding has the ranks and the pattern of o200k_base; only its control tokens are
# more, and those never occur in counted text.
_SAME_RANKS = {"o200k_harmony": "o200k_base"}

_KNOWN = {*MODEL_TO_ENCODING.values(), *MODEL_PREFIX_TO_ENCODING.values()}

# No offline tokenizer exists for current Claude models. They are reported to take 10 to 30 %
# more tokens than o200k_base for prose and code, and the newest generation up to a third more
# than the ones before. The rest stay nearer. Usage that a provider reports narrows both.
_MARGINS = {"claude": 0.5, "anthropic": 0.5}
_MARGIN_OF_OTHERS = 0.3


def resolve(model: str) -> tuple[str, float]:
    """Return the encoding of a model and the relative margin of counting with it (0.0: exact).

    Raises:
        EncodingNotBundled: tiktoken knows the encoding; this package does not hold it.
    """
    encoding = _encoding_in_tiktoken(model)
    if encoding is None:
        return ESTIMATING_ENCODING, _margin(model)
    encoding = _SAME_RANKS.get(encoding, encoding)
    if encoding not in BUNDLED:
        raise EncodingNotBundled(encoding, tuple(sorted(BUNDLED)))
    return encoding, 0.0


def _encoding_in_tiktoken(model: str) -> str | None:
    if model in _KNOWN:
        return model
    try:
        return encoding_name_for_model(model)
    except KeyError:
        return None


def _margin(model: str) -> float:
    lowered = model.lower()
    return next((m for part, m in _MARGINS.items() if part in lowered), _MARGIN_OF_OTHERS)
