"""``python -m conversations.cli`` is the command ``eventstore``."""

from conversations.cli import main

main()
