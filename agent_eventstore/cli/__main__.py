"""``python -m agent_eventstore.cli`` is the command ``eventstore``."""

from eventstore_command import main

main()
