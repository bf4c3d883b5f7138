"""``docs/failures.md`` speaks of every error that there is."""

from __future__ import annotations

import pytest

from eventstore import errors
from tests.docs.document import ROOT


@pytest.mark.parametrize("name", errors.__all__)
def test_error_is_documented(name: str) -> None:
    """Every public error class is named."""
    assert f"`{name}`" in (ROOT / "docs" / "failures.md").read_text("utf-8")
