"""``python -m torture``: what was lost when writers were killed and connections cut."""

import sys

from agent_eventstore.cli import cli
from torture.command import torture

if __name__ == "__main__":
    cli.add_command(torture)
    cli(["torture", *sys.argv[1:]], prog_name="python -m")
