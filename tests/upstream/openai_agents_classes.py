"""A plugin of pytest: `EventStoreSession` and `BranchingSession` in the place of the SDK's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import agents
import agents.extensions.memory
import agents.extensions.memory.advanced_sqlite_session
import agents.memory
import agents.memory.sqlite_session
from stores import store_at  # type: ignore[import-not-found]

from agent_eventstore.integrations.openai_agents.branching_session import BranchingSession
from agent_eventstore.integrations.openai_agents.session import EventStoreSession


class Session(EventStoreSession):
    """Is made as `SQLiteSession` is."""

    def __init__(
        self,
        session_id: str,
        db_path: str | Path = ":memory:",
        sessions_table: str = "",
        messages_table: str = "",
        session_settings: Any = None,
    ) -> None:
        super().__init__(session_id, store_at(db_path), session_settings=session_settings)

    def close(self) -> None:
        """Do nothing: the store is others' as well."""


class Branches(BranchingSession):
    """Is made as `AdvancedSQLiteSession` is."""

    def __init__(
        self,
        *,
        session_id: str,
        db_path: str | Path = ":memory:",
        session_settings: Any = None,
        **_: Any,
    ) -> None:
        super().__init__(session_id, store_at(db_path), session_settings=session_settings)

    def close(self) -> None:
        """Do nothing: the store is others' as well."""

    @property
    def _current_branch_id(self) -> str:
        return self.branch


sdk: Any = agents
sdk.SQLiteSession = sdk.memory.SQLiteSession = sdk.memory.sqlite_session.SQLiteSession = Session
sdk.extensions.memory.AdvancedSQLiteSession = Branches
sdk.extensions.memory.advanced_sqlite_session.AdvancedSQLiteSession = Branches
