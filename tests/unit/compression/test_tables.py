"""JSON as a table says every scalar, and is not made where it could not be read back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.context.compression.table_text import table_text
from tests.unit.compression.example import AIRLINE_FLIGHTS, RETAIL_ORDER

_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
_KEYS = st.sampled_from(["a", "b", "a.b", "key", "columns", "rows", "1"])


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    like = st.lists(_KEYS, min_size=1, max_size=3, unique=True).flatmap(
        lambda keys: st.lists(st.fixed_dictionaries(dict.fromkeys(keys, inner)), max_size=4)
    )
    return like | st.dictionaries(_KEYS, inner, max_size=4) | st.lists(inner, max_size=3)


JSONS = st.recursive(_SCALARS, _nested, max_leaves=20)


def scalars(value: Any) -> Iterator[str]:
    """Yield all scalars of a JSON value as they are written."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from scalars(each)
    else:
        yield json.dumps(value)


class TestWhatIsATable:
    """What becomes one, and what it looks like."""

    def test_like_objects_say_their_keys_once(self) -> None:
        """A flat object within them becomes columns of its own, and no text is cut."""
        long = "word " * 100
        text = json.dumps([{"id": n, "at": {"x": n, "y": 2}, "note": long} for n in (7, 8)])
        table = table_text(text)
        assert table is not None
        assert {
            "columns": ["id", "at.x", "at.y", "note"],
            "rows": [[7, 7, 2, long], [8, 8, 2, long]],
        } == json.loads(table)

    def test_other_json_loses_its_blanks(self) -> None:
        """One object that is like no other is sent without indentation."""
        assert '{"a":1,"b":["x"]}' == table_text('{\n  "a": 1,\n  "b": ["x"]\n}')

    def test_real_results_become_smaller(self) -> None:
        """Results of the retail and airline tasks, every scalar of which is there."""
        for text in (json.dumps(RETAIL_ORDER), json.dumps(AIRLINE_FLIGHTS)):
            table = table_text(text)
            assert table is not None
            assert len(table) < len(text)


class TestNothingIsLost:
    """Whatever cannot be read back is sent as it came."""

    @given(value=JSONS, indent=st.sampled_from([None, 1]))
    def test_every_scalar_stands_there_as_it_was_written(
        self, value: Any, indent: int | None
    ) -> None:
        """Of any JSON at all, as often as it stood there."""
        text = json.dumps(value, indent=indent)
        table = table_text(text)
        if table is not None:
            assert len(table) < len(text)
            assert not Counter(scalars(json.loads(text))) - Counter(scalars(json.loads(table)))

    @pytest.mark.parametrize(
        "text",
        [
            '[{"price": 1.50}, {"price": 2.00}]',
            '[{"n": 1e5}, {"n": 2e5}]',
            '[{"n": -0}, {"n": 1}]',
            '[{"n": NaN}, {"n": 1}]',
            '{"a":  1, "a":  2}',
        ],
    )
    def test_what_would_be_written_otherwise_is_not(self, text: str) -> None:
        """A price of 1.50 is not one of 1.5, and of two equal keys the first is told too."""
        assert table_text(text) is None

    @pytest.mark.parametrize(
        "value",
        [
            {"columns": ["a", "b"], "rows": [[1, 2], [3, 4]]},
            [{"a.b": 1}, {"a.b": 2}],
            [{"key": "a", "x": 1}, {"key": "b", "x": 2}],
        ],
    )
    def test_what_reads_like_a_table_itself_is_not(self, value: Any) -> None:
        """Nobody could tell what it was before."""
        assert table_text(json.dumps(value, indent=2)) is None

    @pytest.mark.parametrize("text", ["", "done", '"a"', "12", "[" * 200 + "]" * 200, "{,}"])
    def test_what_is_no_object_or_list_is_not(self, text: str) -> None:
        """Prose, scalars, and what is nested too deep."""
        assert table_text(text) is None
