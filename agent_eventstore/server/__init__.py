"""The HTTP service: an API, streams that any client can follow, and a viewer, as one ASGI app.

::

    from agent_eventstore import EventStore
    from agent_eventstore.server import create_app

    app = create_app(EventStore.open("sqlite:///agent.db"), token="secret")

Needs ``pip install 'agent-eventstore[server]'``. Nothing else of the package imports it.
"""

from __future__ import annotations

from agent_eventstore.server.application import create_app
from agent_eventstore.server.shared import Identity, Service, ServiceLimits

__all__ = ["Identity", "Service", "ServiceLimits", "create_app"]
