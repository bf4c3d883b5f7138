"""A tool policy says which names may be used; merged ones allow what each of them allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore.events import ToolPolicy

NAMES = ("search", "delete", "github", "mcp__github__search", "mcp__files__read")
some = st.lists(st.sampled_from(NAMES), unique=True).map(tuple)
policies = st.builds(
    ToolPolicy,
    allowed=st.none() | some,
    denied=some,
    mcp_allowlist=st.none() | st.lists(st.sampled_from(("github", "files"))).map(tuple),
    internal_tools=st.dictionaries(st.sampled_from(NAMES), st.booleans()),
    text=st.none() | st.sampled_from(("Ask first.", "Never on Sundays.")),
)


@pytest.mark.parametrize(
    ("policy", "name", "reason"),
    [
        (ToolPolicy(), "search", None),
        (ToolPolicy(denied=("search",)), "search", "the tool policy denies search"),
        (ToolPolicy(internal_tools={"plan": False}), "plan", "the tool policy denies plan"),
        (ToolPolicy(internal_tools={"plan": True}), "plan", None),
        (ToolPolicy(allowed=("search",)), "search", None),
        (ToolPolicy(allowed=("search",), denied=("search",)), "search", "denies search"),
        (ToolPolicy(allowed=()), "search", "search is not among the tools"),
        (ToolPolicy(mcp_allowlist=("github",)), "search", None),
        (ToolPolicy(mcp_allowlist=("github",)), "mcp__github__search", None),
        (ToolPolicy(mcp_allowlist=("github",)), "mcp__files__read", "the MCP server files"),
        (ToolPolicy(mcp_allowlist=()), "mcp__", None),
    ],
)
def test_a_name_is_allowed_or_refused(policy: ToolPolicy, name: str, reason: str | None) -> None:
    """Denials go first; lists that are there must name what may be used."""
    refusal = policy.refusal(name)

    assert (reason is None) == (refusal is None)
    assert (reason or "") in (refusal or "")


@given(policies, policies, st.sampled_from(NAMES))
def test_what_one_refuses_the_merged_one_refuses(
    one: ToolPolicy, other: ToolPolicy, name: str
) -> None:
    """Deny wins, and nothing is refused that both allow."""
    merged = one.merge(other)
    for asked in ("refusal", "server_refusal"):
        apart = [getattr(each, asked)(name) is None for each in (one, other)]
        assert all(apart) == (getattr(merged, asked)(name) is None)


@given(policies, policies)
def test_merging_again_changes_nothing(one: ToolPolicy, other: ToolPolicy) -> None:
    """Neither does None, nor a policy without rules; texts stand there once."""
    merged = one.merge(other)

    assert merged == merged.merge(other) == merged.merge(None) == merged.merge(ToolPolicy())
    assert [text for text in dict.fromkeys((one.text, other.text)) if text] == (
        merged.text.split("\n\n") if merged.text else []
    )
