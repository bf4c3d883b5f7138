"""Payloads of Run mode: a run of a workflow, and steps through its nodes (document 000, 5.3)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from eventstore.events.base import JsonObject, Payload
from eventstore.events.bounds import Name
from eventstore.events.values import Artifact, RunNode

__all__ = ["RunEnd", "RunStart", "RunStepEnd", "RunStepStart"]


class RunStart(Payload):
    """A run of a workflow begins; a conversation may have several runs, with different ids.

    Attributes:
        workflow_id: The workflow, by the product's id.
        directive: Text for the model about the whole run.
        nodes: The nodes of the workflow.
        post_run_protocol: Text for the model once the run is completed.
    """

    type: ClassVar[str] = "run_start"

    run_id: Name
    workflow_id: Name
    directive: str = ""
    nodes: tuple[RunNode, ...] = ()
    post_run_protocol: str | None = None
    config: JsonObject = Field(default_factory=dict)


class RunEnd(Payload):
    """A run is over; a completed run continues under its post-run protocol.

    Attributes:
        post_run_protocol: Replaces the protocol of the run's start.
    """

    type: ClassVar[str] = "run_end"

    run_id: Name
    status: Literal["completed", "failed", "cancelled"]
    post_run_protocol: str | None = None
    error: str | None = None


class RunStepStart(Payload):
    """A node becomes active; ``brief`` and ``context`` describe it to the model.

    Attributes:
        brief: Describes the purpose of the node to the model.
        context: Additional text for the model.
    """

    type: ClassVar[str] = "run_step_start"

    run_id: Name
    node_id: Name
    brief: str | None = None
    context: str | None = None


class RunStepEnd(Payload):
    """A node is done; with the artifacts that it produced.

    Attributes:
        artifacts: The artifacts that the node produced.
    """

    type: ClassVar[str] = "run_step_end"

    run_id: Name
    node_id: Name
    status: Literal["completed", "failed", "skipped", "cancelled"]
    artifacts: tuple[Artifact, ...] = ()
    error: str | None = None
