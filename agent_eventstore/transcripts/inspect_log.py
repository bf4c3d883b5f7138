"""Logs of Inspect: each sample's messages are a conversation.

A log is a ``.eval`` file, which is an archive with a file for each sample, or the same as one JSON
object; a single sample is read too. Messages are nearly those of OpenAI. Long texts are stored
once, in the sample's ``attachments``, and are put back where they are named. A sample's events
repeat how its messages came about: they are passed over, and counted. There is no export to this
format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo, is_zipfile

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts.openai_messages import transcript_of
from agent_eventstore.transcripts.record_source import Record, Source
from agent_eventstore.transcripts.transcript import Transcript, identify

__all__ = ["FORMAT", "is_archive", "read", "recognises"]

FORMAT = "inspect"

_SAMPLES = "samples/"
_HEADERS = ("header.json", "_journal/start.json")
_NAMED = re.compile(r"attachment://([0-9a-f]{32})")
_OF_LOG = ("task", "model", "run_id", "eval_id", "created")
_MOST = 64 * 1024 * 1024
"""How many bytes of an archive's file, and characters of attached texts, a sample may have."""
_AGAIN = ("events", "events_data", "timelines", "attachments", "store", "output")


def is_archive(path: Path) -> bool:
    """Whether a file is an archive of samples, and therefore not text."""
    if not is_zipfile(path):
        return False
    try:
        with ZipFile(path) as archive:
            return any(name.startswith(_SAMPLES) for name in archive.namelist())
    except Exception:
        return False


def recognises(value: Any) -> bool:
    """Whether a value is a log, or a sample of one."""
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("eval"), dict) and "status" in value:
        return isinstance(value.get("samples"), list) or "version" in value
    return _is_sample(value) and "scores" in value


def _is_sample(value: Any) -> bool:
    return isinstance(value, dict) and {"id", "epoch", "messages"} <= value.keys()


def read(source: Source) -> Iterator[Transcript | ImportFailed]:
    """Yield the conversations of the samples, and reports of those that cannot be read."""
    if is_archive(source.path):
        yield from _archive(source)
        return
    for item in source.records():
        if isinstance(item, ImportFailed):
            yield item
        elif _is_sample(item.value):
            yield _conversation(source, item, {})
        elif isinstance(item.value, dict) and isinstance(item.value.get("samples"), list):
            for sample in item.value["samples"]:
                yield _conversation(source, Record(sample, item.line), item.value.get("eval"))
        else:
            yield source.failed(item.line, "there is no sample with messages")


def _archive(source: Source) -> Iterator[Transcript | ImportFailed]:
    with ZipFile(source.path) as archive:
        listed = {each.filename: each for each in archive.infolist()}
        twice = len(archive.infolist()) - len(listed)
        if twice:
            yield source.failed(None, f"{twice} names occur twice in the archive: the last is read")
        header: Any = None
        for name in _HEADERS:
            if header is None and name in listed:
                found = _member(source, archive, listed[name])
                if isinstance(found, ImportFailed):
                    yield found
                else:
                    header = found.value
        about = header.get("eval") if isinstance(header, dict) else None
        samples = [n for n in listed if n.startswith(_SAMPLES) and n.endswith(".json")]
        if not samples:
            yield source.failed(None, "there is no sample in the archive")
        for name in samples:
            sample = _member(source, archive, listed[name])
            if isinstance(sample, ImportFailed):
                yield sample
            else:
                yield _conversation(source, sample, about)


def _member(source: Source, archive: ZipFile, member: ZipInfo) -> Record | ImportFailed:
    if member.file_size > _MOST:
        # Decoded JSON takes several times its size, and an archive may hold it a thousand times
        # smaller than it is.
        reason = f"{member.filename} has more than {_MOST:,} bytes: convert the log to JSON"
        return source.failed(None, reason)
    try:
        raw = archive.read(member)
    except Exception as error:  # each compression has errors of its own
        return source.failed(None, f"{member.filename} cannot be read: {error}")
    found = source.value_of(raw)
    if isinstance(found, ImportFailed):
        return source.failed(found.line, f"{member.filename}: {found.reason}")
    return found


def _conversation(source: Source, record: Record, about: Any) -> Transcript | ImportFailed:
    """Return the conversation of a sample."""
    sample = record.value
    if not _is_sample(sample) or not isinstance(sample["messages"], list):
        return source.failed(record.line, "a sample has no list of messages")
    metadata = about if isinstance(about, Mapping) else {}
    log = {key: metadata[key] for key in _OF_LOG if metadata.get(key) is not None}
    sample_fields = {k: v for k, v in sample.items() if k not in ("messages", *_AGAIN)}
    task, place = log.get("task"), f"{sample['id']}/{sample['epoch']}"
    rest = {
        **sample_fields,
        "title": f"{task}: {place}" if task else place,
        **({"eval": log} if log else {}),
    }
    put_back = _Attachments(sample.get("attachments"))
    messages = put_back.whole(sample["messages"])
    if put_back.characters > _MOST:
        reason = f"sample {place} names attachments of more than {_MOST:,} characters"
        return source.failed(record.line, reason)
    run = log.get("eval_id") or log.get("run_id")
    stated = sample.get("uuid") or (f"{run}/{place}" if run else None)
    origin = identify(
        FORMAT, stated if isinstance(stated, str) else None, (sample_fields, messages)
    )
    try:
        found = transcript_of(source, messages, rest, record.line, origin)
    except ImportFailed as failure:
        return failure
    events = sample.get("events")
    for _ in events if isinstance(events, list) else ():
        found.left_out.note("event of a sample", known=True)
    return found


class _Attachments:
    """A sample's attached texts, and how many characters of them were put back.

    A file may name a text any number of times: beyond the limit no more are put back.
    """

    def __init__(self, texts: Any) -> None:
        self._texts: Mapping[str, Any] = texts if isinstance(texts, dict) else {}
        self.characters = 0

    def whole(self, value: Any) -> Any:
        """Return messages with the attached texts put back."""
        if isinstance(value, str):
            return _NAMED.sub(self._text, value)
        if isinstance(value, list):
            return [self.whole(each) for each in value]
        if isinstance(value, dict):
            return {key: self.whole(each) for key, each in value.items()}
        return value

    def _text(self, named: re.Match[str]) -> str:
        text = self._texts.get(named[1])
        if not isinstance(text, str):
            return named[0]
        self.characters += len(text)
        return text if self.characters <= _MOST else named[0]
