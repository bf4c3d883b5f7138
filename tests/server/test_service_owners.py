"""Two owners can reach nothing of each other, through any route of the OpenAPI document."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from agent_eventstore.server import Identity, create_app
from agent_eventstore.server.application import OPERATIONS
from eventstore import EventStore
from tests.server.serving import TOKEN, Answering, Running, running, serving

SECRET = "only ada knows the word xylophone"


def value_of(schema: dict[str, Any]) -> Any:
    """Return a value that a schema allows, as far as the operations need one."""
    for each in schema.get("anyOf", [schema]):
        match each.get("type"):
            case "string":
                return "xylophone" if "format" not in each else None
            case "integer":
                return max(1, each.get("minimum", 1))
            case "boolean":
                return True
    return None


def body_of(document: dict[str, Any], operation: dict[str, Any]) -> dict[str, Any] | None:
    """Return a body with the required members and those that name a conversation."""
    if "requestBody" not in operation:
        return None
    reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    schema = document["components"]["schemas"][reference.rpartition("/")[2]]
    properties = schema["properties"]
    return {name: value_of(properties[name]) for name in schema.get("required", ())}


def test_no_route_reaches_another_owner(store: EventStore) -> None:
    """Every operation with the other's id answers as if there were none, and changes nothing."""
    models = {"tom": Answering("tom says")}
    with running(store, models=models, user_header="X-User", token=TOKEN) as service:
        ada, bob = {"X-User": "ada"}, {"X-User": "bob"}
        theirs = service.client.post("/api/chat", json={"message": SECRET}, headers=ada).json()
        own_id = theirs["thread_id"]
        before = store.get(own_id).version
        document = service.client.get("/api/openapi.json", headers=bob).json()
        tried = 0
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                body = body_of(document, operation)
                if path == "/api/conversations/{conversation}" and method == "patch":
                    body = {"title": "mine"}
                if operation["operationId"] == "ui_chat":
                    parts = [{"type": "text", "text": "mine"}]
                    body = {"id": own_id, "messages": [{"role": "user", "parts": parts}]}
                if operation["operationId"] == "chat":
                    body = {"message": "mine", "thread_id": own_id}
                params = {
                    each["name"]: value_of(each["schema"])
                    for each in operation["parameters"]
                    if each["in"] == "query" and each["required"]
                }
                found = service.client.request(
                    method.upper(),
                    path.replace("{conversation}", own_id),
                    params=params,
                    json=body,
                    headers=bob,
                )
                tried += 1
                assert SECRET not in found.text, path
                if "{conversation}" in path or operation["operationId"] == "chat":
                    assert found.status_code == 404, (method, path, found.text)
                    assert "another" not in found.text
                else:  # a chat of their own may have this name
                    assert f'"{own_id}"' not in found.text, path
        assert tried == len(OPERATIONS)
        for route in service.app.routes:  # the viewer's pages, which the document does not describe
            if route.path.startswith(("/api", "/streams", "/static")):
                continue
            place = route.path.replace("{conversation}", own_id).replace("{call}", "2.0")
            place = re.sub(r"{\w+:int}", "2", place)
            found = service.client.get(place, params={"q": "xylophone"}, headers=bob)
            assert SECRET not in found.text, route.path
            assert own_id not in found.text, route.path
            if "{conversation}" in route.path:
                assert found.status_code == 404, (route.path, found.text)
        assert store.get(own_id).version == before
        for name in ("user_id", "tenant_id"):
            for path in ("/api/conversations", "/api/usage", "/api/tool-calls"):
                found = service.client.get(path, params={name: "ada"}, headers=bob)
                assert found.status_code == 403
        created = service.client.post("/api/conversations", json={"user_id": "ada"}, headers=bob)
        assert created.status_code == 403


def test_a_proxy_must_name_the_user_once(store: EventStore) -> None:
    """Without the header, with an empty one or with two, a request is nobody's."""
    with running(store, user_header="X-User", token=TOKEN) as service:
        for headers in ([], [("X-User", "")], [("X-User", "a"), ("X-User", "b")]):
            assert service.client.get("/api/usage", headers=headers).status_code == 401


def test_the_products_hook(store: EventStore) -> None:
    """It may be asynchronous, refuse, and name a tenant; the application is mounted in another."""

    async def owner_of(request: Request) -> Identity | None:
        user = request.headers.get("X-Login")
        return None if user is None else Identity(user_id=user, tenant_id="acme")

    inner = create_app(store, authenticate=owner_of, models={"tom": Answering("tom")})
    app = Starlette(routes=[Mount("/eventstore", inner)])
    with serving(app) as address:
        place = f"{address}/eventstore/api"
        assert httpx.get(f"{place}/usage").status_code == 401
        made = httpx.post(f"{place}/conversations", json={}, headers={"X-Login": "ada"})
        where = made.headers["location"]
        assert where.startswith("/eventstore/api/conversations/")
        info = store.get(made.json()["conversation_id"])
        assert (info.tenant_id, info.user_id) == ("acme", "ada")
        assert httpx.get(f"{address}{where}", headers={"X-Login": "ada"}).status_code == 200
        assert httpx.get(f"{address}{where}", headers={"X-Login": "bob"}).status_code == 404


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_document_is_of_the_routes(service: Running) -> None:
    """Every operation that is documented exists, and every route of the API is documented."""
    document = service.client.get("/api/openapi.json").json()
    documented = {
        (method.upper(), path)
        for path, operations in document["paths"].items()
        for method in operations
    }
    routed = {
        (method, route.path)
        for route in service.app.routes
        for method in getattr(route, "methods", None) or ()
        if route.path.startswith(("/api", "/streams")) and method != "HEAD"
    }
    assert routed == {each for each in documented if each[0] != "HEAD"}
    page = service.client.get("/api")
    assert page.headers["content-type"].startswith("text/html")
    assert all(path in page.text for _, path in documented)
