"""Aliases of tool outputs name a call and nothing else: none leaves the state directory."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_eventstore.artifacts import ToolOutputs, call_of_alias, checked_alias
from agent_eventstore.errors import UnknownAlias
from eventstore.blobs import alias_of

PREFIX = "@state/logs/tool-results/"
CID = UUID(int=7)
ESCAPES = (
    *("../1.0", "../../1.0", "1.0/../../x", "/1.0", "//1.0", "./1.0", "1.0/", "C:1.0", "~/1.0"),
    *("..\\1.0", "1.0\\..\\x", "%2e%2e%2f1.0", "1%2e0", "..%2f1.0", "%00", "1.0\x00", "\x001.0"),
    *(
        "1.0\n",
        "\n1.0",
        " 1.0",
        "1.0 ",
        "1.0.json",
        "1.0;x",
        "$(id)",
        "*",
        "",
        ".",
        "..",
        "1",
        "1.",
    ),
    # Digits, dots and slashes of other scripts, which some would make plain ones of.
    *("\u0661.\u0660", "\uff11.\uff10", "1\u20240", "\u2025/1.0", "1.0\u2215x", "\u202e1.0"),
    *("-1.0", "+1.0", "1e3.0", "0x1.0", "1" * 19 + ".0", "1." + "0" * 10),
)


@pytest.mark.parametrize("call_id", ESCAPES)
def test_what_is_no_call_has_no_alias(tmp_path: Path, call_id: str) -> None:
    """Neither is such an alias read, nor such a file written."""
    outputs = ToolOutputs(tmp_path / "state", CID)
    with pytest.raises(UnknownAlias):
        call_of_alias(f"{PREFIX}{call_id}.json")
    with pytest.raises(UnknownAlias):
        outputs.write(call_id, "x")
    assert [] == list(tmp_path.iterdir())


OWN = "@project/artifacts/"
OUTSIDE = (
    *("/etc/passwd", "//host/share", "/", "", ".", "..", "./a", "../a", "a/..", "a/../b", "a/./b"),
    *("a//b", "a/", "a//", "C:a", "C:/a", "c:", "z:\\a", "a\\b", "..\\a", "\\\\host\\share"),
    *("a b", " a", "a\n", "a\x00", "a\x7f", "a/\t/b", "x" * 201, "a/" * 150 + "a"),
)


@pytest.mark.parametrize("prefix", [OWN, "", "@state/", PREFIX, "@project/", "@PROJECT/artifacts/"])
@pytest.mark.parametrize("path", OUTSIDE)
def test_a_products_alias_stays_under_its_folder(prefix: str, path: str) -> None:
    """Joined with any folder, on any system, an accepted alias leads to a place below it."""
    with pytest.raises(ValueError, match="is not an alias"):
        checked_alias(prefix + path)


@pytest.mark.parametrize(
    "path", ["a", "a/b.txt", "a/..b/c..", "r\u00e9sum\u00e9.pdf", ".hidden", "a/C:b"]
)
def test_a_products_own_alias_is_accepted(path: str) -> None:
    """Names with dots, other scripts and colons further in are ordinary names."""
    assert OWN + path == checked_alias(OWN + path)


@given(st.text(max_size=12) | st.from_regex(r"@state/logs/tool-results/.{0,8}\.(json|txt)"))
@example("@state/logs/tool-results/1.0.json/../../../x")
@example("@STATE/logs/tool-results/1.0.json")
@example("file://@state/logs/tool-results/1.0.json")
def test_only_aliases_of_calls_are_read(alias: str) -> None:
    """What is read is the alias of the call that it is read as, letter for letter."""
    try:
        call_id = call_of_alias(alias)
    except UnknownAlias:
        return
    endings = (alias_of(call_id, "x"), alias_of(call_id, "{}"), f"{PREFIX}{call_id}")
    assert alias in endings
    assert call_id.isascii()
    assert call_id.replace(".", "", 1).isdecimal()


@pytest.mark.parametrize("link", [f"{CID}", f"{CID}/logs", f"{CID}/logs/tool-results"])
def test_a_linked_folder_is_not_followed(tmp_path: Path, link: str) -> None:
    """A tool that works in the state directory cannot have outputs, or folders, put elsewhere."""
    (outside := tmp_path / "outside").mkdir()
    place = tmp_path / "state" / link
    place.parent.mkdir(parents=True)
    place.symlink_to(outside)
    with pytest.raises(OSError, match="leads out of the state directory"):
        ToolOutputs(tmp_path / "state", CID).write("1.0", "x")
    assert [] == list(outside.iterdir())


def test_a_linked_file_is_replaced(tmp_path: Path) -> None:
    """A link in the place of an output goes; what it pointed to stays as it was."""
    (secret := tmp_path / "secret").write_text("as it was", "utf-8")
    folder = tmp_path / "state" / str(CID) / "logs" / "tool-results"
    folder.mkdir(parents=True)
    (folder / "1.0.txt").symlink_to(secret)
    ToolOutputs(tmp_path / "state", CID).write("1.0", "x")
    assert "as it was" == secret.read_text("utf-8")
    assert ["1.0.txt"] == [path.name for path in folder.iterdir()]
    assert "x" == (folder / "1.0.txt").read_text("utf-8")


def test_a_linked_state_directory_is_the_products_own_choice(tmp_path: Path) -> None:
    """Where the state lies is for the product to say, also by a link."""
    (real := tmp_path / "real").mkdir()
    (tmp_path / "state").symlink_to(real)
    ToolOutputs(tmp_path / "state", CID).write("1.0", "x")
    assert (real / str(CID) / "logs" / "tool-results" / "1.0.txt").is_file()
