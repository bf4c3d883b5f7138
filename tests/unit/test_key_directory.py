"""Keys in a directory: who can read them, how they are wrapped, and that they can be destroyed."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest

from eventstore import DirectoryKeys, new_id

CID, KEY_ID = new_id(), "0123456789abcdef"
OLD, NEW = bytes(32), bytes(range(32))


def files(directory: Path) -> list[Path]:
    """Return all files below."""
    return [path for path in sorted(directory.rglob("*")) if path.is_file()]


def test_files_are_their_owners_alone(tmp_path: Path) -> None:
    """Files have mode 0600 and directories 0700; nothing half written is left."""
    DirectoryKeys(tmp_path / "keys").create(CID, KEY_ID)

    [file] = files(tmp_path)
    assert (0o600, 0o700) == (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777)
    assert 0o700 == (tmp_path / "keys").stat().st_mode & 0o777


def test_a_key_comes_back(tmp_path: Path) -> None:
    """Another process gets what was created; each key is another one."""
    key = DirectoryKeys(tmp_path).create(CID, KEY_ID)
    assert key == DirectoryKeys(tmp_path).get(CID, KEY_ID)
    assert key != DirectoryKeys(tmp_path).create(CID, "f" * 16)


def test_a_destroyed_key_is_gone_and_known_to_be(tmp_path: Path) -> None:
    """None says that it is destroyed; a key that was never there is an error."""
    keys = DirectoryKeys(tmp_path)
    text = b64encode(keys.create(CID, KEY_ID))
    for _ in range(2):
        keys.destroy(CID, KEY_ID)
        assert keys.get(CID, KEY_ID) is None
    assert not any(text in file.read_bytes() for file in files(tmp_path))
    with pytest.raises(LookupError, match="has no key"):
        keys.get(new_id(), KEY_ID)


@pytest.mark.parametrize("wrapping", [(), NEW])
def test_a_damaged_file(tmp_path: Path, wrapping: bytes | tuple[()]) -> None:
    """It is not taken for a destroyed key, nor for another one."""
    keys = DirectoryKeys(tmp_path, wrapping)
    keys.create(CID, KEY_ID)
    [file] = files(tmp_path)
    file.write_text(file.read_text()[:-20] + "!" * 20)
    with pytest.raises(LookupError, match="damaged"):
        keys.get(CID, KEY_ID)


@pytest.mark.parametrize("form", ["bytes", "hex", "base64", "file", "text file", "callable"])
def test_forms_of_a_wrapping_key(tmp_path: Path, form: str) -> None:
    """The product gives it in memory, in the environment, in a file or by a call."""
    path = tmp_path / "wrapping"
    path.write_bytes(NEW if form == "file" else NEW.hex().encode() + b"\n")
    given = {
        "bytes": NEW,
        "hex": NEW.hex(),
        "base64": b64encode(NEW).decode(),
        "file": path,
        "text file": path,
        "callable": lambda: NEW,
    }[form]
    key = DirectoryKeys(tmp_path / "keys", given).create(CID, KEY_ID)  # type: ignore[arg-type]

    assert key == DirectoryKeys(tmp_path / "keys", NEW).get(CID, KEY_ID)
    [file] = files(tmp_path / "keys")
    assert b64encode(key) not in file.read_bytes()


@pytest.mark.parametrize("given", [b"short", "short", "0" * 63, b""])
def test_what_is_no_wrapping_key(tmp_path: Path, given: bytes | str) -> None:
    """It is refused when the keys are opened, and not when the first is needed."""
    with pytest.raises(ValueError, match="a wrapping key has 32 bytes"):
        DirectoryKeys(tmp_path, given)


def test_rewrapping(tmp_path: Path) -> None:
    """Old keys open with the older wrapping key; once rewrapped, with the new one alone."""
    key = DirectoryKeys(tmp_path, OLD).create(CID, KEY_ID)
    with pytest.raises(LookupError, match="which is not given"):
        DirectoryKeys(tmp_path, NEW).get(CID, KEY_ID)
    both = DirectoryKeys(tmp_path, [NEW, OLD])
    assert key == both.get(CID, KEY_ID)

    assert (1, 0) == (both.rewrap(), both.rewrap())

    assert key == DirectoryKeys(tmp_path, NEW).get(CID, KEY_ID)
    with pytest.raises(LookupError):
        DirectoryKeys(tmp_path, OLD).get(CID, KEY_ID)


def test_a_copy_of_a_killed_process_is_destroyed_with_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One killed while it rewrapped left the key under another name, for good."""
    keys = DirectoryKeys(tmp_path)
    text = b64encode(keys.create(CID, KEY_ID))
    other = DirectoryKeys(tmp_path)
    other.create(CID, "f" * 16)
    with monkeypatch.context() as killed:
        killed.setattr(Path, "replace", _kill)
        killed.setattr(Path, "unlink", _kill)
        for path in files(tmp_path):
            with pytest.raises(KeyboardInterrupt):
                keys._write(path, path.read_text)
    assert 4 == len(files(tmp_path))

    keys.destroy(CID, KEY_ID)

    assert not any(text in file.read_bytes() for file in files(tmp_path))
    assert other.get(CID, "f" * 16) is not None


def test_a_key_destroyed_while_it_is_rewrapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before it looked for the marker, the process left a destroyed key in a file."""

    class Slow(DirectoryKeys):
        def _wrapped(self, key: bytes) -> str:
            text = super()._wrapped(key)
            DirectoryKeys(tmp_path, OLD).destroy(CID, KEY_ID)
            return text

    DirectoryKeys(tmp_path, OLD).create(CID, KEY_ID)
    assert 0 == Slow(tmp_path, [NEW, OLD]).rewrap()
    assert [".gone"] == [path.suffix for path in files(tmp_path)]

    DirectoryKeys(tmp_path, OLD).create(CID, "f" * 16)
    with monkeypatch.context() as killed:
        killed.setattr(Path, "replace", _kill)
        with pytest.raises(KeyboardInterrupt):
            DirectoryKeys(tmp_path, [NEW, OLD]).rewrap()
    DirectoryKeys(tmp_path, OLD).destroy(CID, "f" * 16)
    assert {0} == {path.stat().st_size for path in files(tmp_path)}


def _kill(*_: object, **__: object) -> None:
    raise KeyboardInterrupt
