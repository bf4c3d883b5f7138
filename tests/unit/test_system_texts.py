"""Which system parts a session knows to be in the log."""

from __future__ import annotations

from agent_eventstore.requests import SystemTexts


def test_a_system_part_is_stored_once() -> None:
    """Later requests name the one that holds it."""
    systems, policy = SystemTexts(), {"model": "m", "system": ["Be brief."]}
    assert policy == systems.shared(policy)
    systems.stored(policy, 3)
    assert {"model": "m", "system_of": 3} == systems.shared(policy)
    assert {"model": "m"} == systems.shared({"model": "m"})


def test_texts_are_not_kept_without_end() -> None:
    """Before, every different system part stayed in memory for the whole session."""
    systems, long = SystemTexts(), "x" * 1_000
    for number in range(1_000):
        systems.stored({"system": [f"{number} {long}"]}, number)
    last = {"system": [f"999 {long}"]}
    assert (256, {"system_of": 999}) == (len(systems.versions), systems.shared(last))
    assert 64 * 256 > sum(len(key) for key in systems.versions)
    assert {"system": [f"0 {long}"]} == systems.shared({"system": [f"0 {long}"]})
