"""Payloads of Run mode: a run of a workflow, and steps through its nodes (document 000, 5.3)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from eventstore.events.base import JsonObject, Payload
from eventstore.events.bounds import Name
from eventstore.events.values import Artifact, RunNode

__all__ = ["RunEnd", "RunStart", "RunStepEnd", "RunStepStart"]


class RunStart(Payload):
    """A run of a workflow begins; several runs may live in one conversation, told apart by id.

    Attributes:
        workflow_id: The workflow, by the product's id.
        directive: What the model is told of the whole run.
        nodes: The nodes of the workflow.
        post_run_protocol: What the model is told once the run is completed.
    """

    type: ClassVar[str] = "run_start"

    run_id: Name
    workflow_id: Name
    directive: str = ""
    nodes: tuple[RunNode, ...] = ()
    post_run_protocol: str | None = None
    config: JsonObject = Field(default_factory=dict)


class RunEnd(Payload):
    """A run is over; a completed one goes on under its post-run protocol.

    Attributes:
        post_run_protocol: In place of the one that the start named.
    """

    type: ClassVar[str] = "run_end"

    run_id: Name
    status: Literal["completed", "failed", "cancelled"]
    post_run_protocol: str | None = None
    error: str | None = None


class RunStepStart(Payload):
    """A node becomes active; ``brief`` and ``context`` are what the model is told of it.

    Attributes:
        brief: What the model is told that the node is for.
        context: What it is told besides.
    """

    type: ClassVar[str] = "run_step_start"

    run_id: Name
    node_id: Name
    brief: str | None = None
    context: str | None = None


class RunStepEnd(Payload):
    """A node is done, with what it produced.

    Attributes:
        artifacts: What the node produced.
    """

    type: ClassVar[str] = "run_step_end"

    run_id: Name
    node_id: Name
    status: Literal["completed", "failed", "skipped", "cancelled"]
    artifacts: tuple[Artifact, ...] = ()
    error: str | None = None
