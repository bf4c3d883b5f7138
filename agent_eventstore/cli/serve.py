"""``eventstore serve``: the HTTP service and its viewer, for this machine by default."""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
from contextlib import ExitStack
from typing import Any

import click

from agent_eventstore.cli.chat import model_client
from agent_eventstore.cli.console import note, say
from agent_eventstore.cli.demo import DEMO_FILE
from agent_eventstore.cli.options import ServerUrl, common
from agent_eventstore.cli.program import Failed, require_server
from agent_eventstore.cli.target import Target
from agent_eventstore.participants import Participant

__all__ = ["serve"]

_TOKEN_BYTES = 24
_SHORTEST = 16
_SHUTDOWN_S = 5
_TOKEN_VARIABLE = "EVENTSTORE_TOKEN"  # noqa: S105 - the name of the variable


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8765,
    show_default=True,
    help="The port; 0 for any free one.",
)
@click.option(
    "--token",
    metavar="SECRET",
    envvar=_TOKEN_VARIABLE,
    help=f"What requests must carry; by default a new one.  [env var: {_TOKEN_VARIABLE}]",
)
@click.option(
    "--allow-host",
    "hosts",
    metavar="NAME",
    multiple=True,
    help="Another name under which the service is called; may be repeated.",
)
@click.option(
    "--user-header",
    metavar="NAME",
    help="The header in which a proxy that has authenticated the user names them.",
)
@click.option("--model", metavar="NAME", help="The model that answers messages.")
@click.option(
    "--base-url",
    metavar="URL",
    type=ServerUrl(),
    envvar="OPENAI_BASE_URL",
    help="A server of OpenAI's API.  [env var: OPENAI_BASE_URL]",
)
@click.option("--demo", is_flag=True, help="Let scripted participants answer, without a key.")
@common
def serve(
    target: Target,
    /,
    host: str,
    port: int,
    token: str | None,
    hosts: tuple[str, ...],
    user_header: str | None,
    model: str | None,
    base_url: str | None,
    demo: bool,
) -> None:
    """Serve the viewer and an HTTP API for this database.

    Open the address that it prints: its token becomes a cookie of the browser. Programs send it as
    Authorization: Bearer TOKEN. On an address that other machines reach, --token is required, and
    so it is with --user-header, whose proxy then sends both. --read-only refuses every change.
    """
    require_server("this command")
    if demo and model is not None:
        raise Failed("--demo and --model contradict each other: choose one")
    if token is None and not _is_loopback(host):
        raise Failed(
            f"other machines reach {host}: name a secret with --token or {_TOKEN_VARIABLE}"
        )
    if token is None and user_header is not None:
        raise Failed(
            "--user-header needs --token: otherwise any program that reaches the port can name any "
            "user. Let the proxy send Authorization: Bearer TOKEN"
        )
    if token is not None and (len(token) < _SHORTEST or not token.isascii()):
        raise Failed(f"the token must have at least {_SHORTEST} characters, all of them ASCII")
    with ExitStack() as stack:
        if demo and not target.by_hand:
            target.named = f"sqlite:///{DEMO_FILE}"
        store = stack.enter_context(target.open() if target.read_only else target.create())
        from agent_eventstore.server import create_app
        from agent_eventstore.server.guard import LOOPBACK_NAMES

        secret = token or secrets.token_urlsafe(_TOKEN_BYTES)
        app = create_app(
            store,
            **_models(model, base_url, demo, stack),
            token=secret,
            user_header=user_header,
            hosts=(*LOOPBACK_NAMES, host, *hosts),
            read_only=target.read_only,
        )
        with _bound(host, port) as listening:
            _announce(host, listening.getsockname()[1], None if token else secret)
            _run(app, listening)


def _models(
    model: str | None, base_url: str | None, demo: bool, stack: ExitStack
) -> dict[str, Any]:
    """Return who answers messages."""
    if demo:
        from agent_eventstore.demo.chat_model import DemoChatModel

        people = (
            Participant("ada", "Ada", persona="You are brief."),
            Participant("ben", "Ben", persona="You are thorough."),
        )
        return {"models": {each.id: DemoChatModel() for each in people}, "participants": people}
    if model is None:
        return {}
    client = model_client(model, base_url, stack)
    return {"models": {"assistant": client}, "model_name": model}


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens at the address.

    Raises:
        Failed: The address cannot be used.
    """
    try:
        listening = socket.create_server(
            (host, port),
            family=socket.AF_INET6 if ":" in host else socket.AF_INET,
            backlog=2_048,
        )
    except OSError as error:
        raise Failed(
            f"cannot listen on {host}:{port}: {error.strerror or error}; choose another --port"
        ) from error
    # Connections inherit it. Otherwise the body waits up to 40 ms for the headers' acknowledgement:
    # the event loop sets it only for sockets that name their protocol.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _announce(host: str, port: int, secret: str | None) -> None:
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{port}/"
    # A token that the caller chose is not printed: the output may be a log.
    say(f"serving {address if secret is None else f'{address}?token={secret}'}")
    note("stop with Ctrl-C")


def _run(app: Any, listening: socket.socket) -> None:
    """Serve until a signal; open streams and answers have a few seconds to end."""
    import uvicorn

    config = uvicorn.Config(
        app,
        log_level=os.environ.get("EVENTSTORE_SERVE_LOG", "warning"),
        access_log=False,
        lifespan="off",
        server_header=False,
        date_header=True,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_SHUTDOWN_S,
        limit_concurrency=1_000,
        h11_max_incomplete_event_size=65_536,
    )
    uvicorn.Server(config).run(sockets=[listening])
