"""A product's own events on the command line, which may not know their classes."""

from __future__ import annotations

from eventstore import EventStore, new_id
from eventstore import events as e
from tests.cli.program import run
from tests.contract.test_own_events import TicketOpened


def test_events_are_listed_by_their_type(database_url: str) -> None:
    """With what they say, as JSON where no class is known."""
    cid = new_id()
    with EventStore.open(database_url) as store:
        strange = e.UnknownEvent("other.closed", 1, {"by": "Ada"})
        store.append(cid, [e.UserMessage.text("hi"), TicketOpened(number=7), strange])
    for kind, said in (("acme.ticket_opened", '"number":7'), ("other.closed", '"by":"Ada"')):
        done = run("events", str(cid), "--type", kind, url=database_url)
        assert (0, True) == (done.status, said in done.out)
        assert "hi" not in done.out
    refused = run("events", str(cid), "--type", "user_massage", url=database_url)
    assert (2, True) == (refused.status, "user_message" in refused.err)


def test_types_that_nobody_registered_are_told(database_url: str) -> None:
    """By verify and doctor, with how many events; neither calls it a problem."""
    with EventStore.open(database_url) as store:
        store.append(new_id(), [e.UnknownEvent("other.opened", 1, {})] * 2)
    verified = run("verify", url=database_url)
    assert (0, True) == (verified.status, "2 events of type other.opened" in verified.err)
    document = run("verify", "--json", url=database_url).document
    assert {"other.opened": 2} == document["unregistered"]
    examined = run("doctor", "--json", url=database_url)
    (chain,) = (each for each in examined.document["checks"] if each["name"] == "chain")
    assert (0, "warning") == (examined.status, chain["status"])
    assert "other.opened (2)" in chain["found"]
    assert "eventstore.events" in chain["advice"]
