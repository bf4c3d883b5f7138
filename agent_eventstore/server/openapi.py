"""The OpenAPI document, made from the operations and the models that check their requests."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from agent_eventstore.server.endpoints import Operation

__all__ = ["document_of_api"]

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
