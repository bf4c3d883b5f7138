"""A web application that opens its store as it is imported, as prefork servers with preload do."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from eventstore import EventStore, new_id
from tests.contract.facade import say, texts

store = EventStore.open(os.environ["EVENTSTORE_DB"])
store.append(new_id(), say("before the fork"))


def app(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    """Append a conversation of two events, and tell what is read of it."""
    cid, number = new_id(), environ["QUERY_STRING"]
    store.append(cid, say(f"{number} a"))
    time.sleep(0.01)  # So that the other worker takes some of the requests.
    store.append(cid, say(f"{number} b"), expected_version=1)
    told = {"worker": os.getpid(), "id": str(cid), "said": texts(store.read(cid))}
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(told).encode()]
