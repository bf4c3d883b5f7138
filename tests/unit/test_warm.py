"""Programs that are forked end as those that Python starts, however they are started and end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.warm import Programs

_PROGRAM = """
import atexit, sys, threading, time

class Own:
    def __init__(self):
        self.again = self

    def __del__(self):
        print("collected")

def late():
    time.sleep(0.01)
    print("the thread has ended")

kept = Own()
threading.Thread(target=late).start()
atexit.register(lambda: print("at exit"))
{ending}
"""
_SAID = ["the thread has ended", "at exit", "collected"]


@pytest.mark.parametrize("way", ["a text", "a file", "a module"])
@pytest.mark.parametrize(
    ("ending", "status", "told"),
    [
        ("pass", 0, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit('refused')", 1, "refused"),
        ("raise KeyError('missing')", 1, "KeyError: 'missing'"),
    ],
    ids=["at its end", "without a status", "with a status", "with a message", "by an error"],
)
def test_a_program_ends_as_python_ends_it(
    programs: Programs, tmp_path: Path, way: str, ending: str, status: int, told: str
) -> None:
    """Threads are awaited, then what was registered is called, and all of it is written."""
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM.format(ending=ending))
    given = {
        "a text": ("-c", program.read_text()),
        "a file": (str(program),),
        "a module": ("-m", "program"),
    }
    done = programs.run(*given[way], directory=tmp_path)
    assert (status, _SAID) == (done.returncode, done.stdout.splitlines())
    assert told in done.stderr
    assert bool(told) == bool(done.stderr)
