"""The OpenAPI document, made from the operations and the models that check their requests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from html import escape
from importlib.metadata import version
from typing import Any

from agent_eventstore.server.endpoints import Operation

__all__ = ["document_of_api", "page_of_api"]

_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong, and what to do."},
        "error": {"type": "string", "description": "The library's error."},
        "conversation_id": {"type": "string", "format": "uuid"},
    },
}
_REFERENCE = {"$ref": "#/components/responses/Problem"}


def document_of_api(operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of these operations."""
    paths: dict[str, dict[str, Any]] = {}
    schemas: dict[str, Any] = {}
    for each in operations:
        paths.setdefault(each.path, {})[each.method.lower()] = _described(each, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "agent-eventstore",
            "version": version("agent-eventstore"),
            "description": "Conversations of agents: read, followed, answered.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {
                "Problem": {
                    "description": "Why the request is refused (RFC 9457).",
                    "content": {"application/problem+json": {"schema": _PROBLEM}},
                }
            },
        },
    }


def _described(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [*_parameters(operation)],
        "responses": {
            str(operation.status): {
                "description": "Success.",
                "content": {operation.media_type: {}},
            },
            "default": _REFERENCE,
        },
    }
    if operation.body is not None:
        name = operation.body.__name__
        schema = operation.body.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs", {})
        schemas[name] = schema
        reference = {"$ref": f"#/components/schemas/{name}"}
        found["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": reference}},
        }
    return found


def _parameters(operation: Operation) -> Iterable[dict[str, Any]]:
    for name in re.findall(r"{(\w+)}", operation.path):
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "description": "The conversation's id, or the product's key for it.",
            "schema": {"type": "string"},
        }
    schema = operation.query.model_json_schema()
    required = schema.get("required", ())
    for name, of_one in schema.get("properties", {}).items():
        yield {"name": name, "in": "query", "required": name in required, "schema": of_one}
    for name, description in operation.headers.items():
        yield {
            "name": name,
            "in": "header",
            "description": description,
            "schema": {"type": "string"},
        }


def page_of_api(document: dict[str, Any]) -> str:
    """Return the document as a page in HTML, for people: it needs no script and no style."""
    schemas = document["components"]["schemas"]
    sections = [
        _section(method.upper(), path, operation, schemas)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]
    title = f"{document['info']['title']} {document['info']['version']}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<main><h1>{escape(title)}</h1><p>Also as <a href="api/openapi.json">OpenAPI</a>.</p>'
        f"{''.join(sections)}</main></html>"
    )


def _section(method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    rows = [
        (each["name"], each["in"], each.get("description", ""), each["schema"])
        for each in operation["parameters"]
    ]
    if "requestBody" in operation:
        reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        fields = schemas[reference.rpartition("/")[2]]["properties"]
        rows += [(name, "body", "", schema) for name, schema in fields.items()]
    cells = "".join(
        f"<tr><td><code>{escape(name)}</code><td>{escape(place)}"
        f"<td>{escape(described or schema.get('description', ''))}"
        f"<td><code>{escape(_kind_of(schema))}</code>"
        for name, place, described, schema in rows
    )
    head = "<tr><th>name<th>in<th>meaning<th>type"
    return (
        f"<section><h2><code>{method} {escape(path)}</code></h2>"
        f"<p>{escape(operation['summary'])}</p>"
        f"{f'<table>{head}{cells}</table>' if rows else ''}</section>"
    )


def _kind_of(schema: dict[str, Any]) -> str:
    kinds = [each.get("type") or json.dumps(each) for each in schema.get("anyOf", [schema])]
    return " or ".join(map(str, kinds)) + "".join(f" | {each}" for each in schema.get("enum", ()))
