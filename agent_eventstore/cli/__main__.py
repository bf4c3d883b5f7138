"""``python -m agent_eventstore.cli`` is the command ``eventstore``."""

from agent_eventstore.cli import main

main()
