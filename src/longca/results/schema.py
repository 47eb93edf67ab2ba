"""Decoding lines of journals, older schemas included; and the JSON schema of what is written now."""

from __future__ import annotations

import re
from operator import attrgetter
from sys import intern
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import asdict

from longca.errors import BadInput
from longca.results.problem import Pass
from longca.results.record import SCHEMA, Environment, Given, MaskEntry, Params, Record, Status

T = TypeVar("T")


class _Head(msgspec.Struct):
    schema: int


class _Record1(Record, kw_only=True):
    """Schema 1: a cell that a rule skipped was `unsupported` and `limited`."""

    limited: bool | None = False
    given: Given | None = None  # type: ignore[assignment]  # the first records lacked it


_head, _record, _record1 = msgspec.json.Decoder(_Head), msgspec.json.Decoder(Record), msgspec.json.Decoder(_Record1)
_mask = msgspec.json.Decoder(MaskEntry)
_schema_of = attrgetter("schema")
_environments = msgspec.json.Decoder(dict[str, Environment])
_TRUNCATED = "Input data was truncated"
_BYTE = re.compile(r"\(byte (?P<number>\d+)\)$")
_WHERE = re.compile(r" - at `\$\.?(?P<path>.*)`$")


class Damaged(BadInput):
    """A line or a file that is not what the schema says; the message is a clause without the place."""


def lines_of(text: bytes) -> list[bytes]:
    """The lines of a text in which each has its end."""
    return text.split(b"\n")[:-1]


class LinesDecoder(Generic[T]):
    """Decodes the lines of a JSONL file, one by one or many at once; raises Damaged where one is not what the schema says."""

    def line(self, line: bytes) -> T:
        raise NotImplementedError

    def block(self, lines: bytes) -> list[T]:
        return [self.line(line) for line in lines_of(lines)]


class MaskDecoder(LinesDecoder[MaskEntry]):
    def line(self, line: bytes) -> MaskEntry:
        return decode_mask(line)


class RecordDecoder(LinesDecoder[Record]):
    """Text, versions and parameters that many records repeat are one object for all of them, which readers find faster and which saves
    memory."""

    def __init__(self) -> None:
        self._versions: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
        self._params: dict[tuple[object, ...], Params] = {}
        self._given: dict[tuple[object, ...], Given] = {}

    def line(self, line: bytes) -> Record:
        return self._shared(decode_record(line))

    def block(self, lines: bytes) -> list[Record]:
        try:
            records = _record.decode_lines(lines)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            records = []
        if len(records) != lines.count(b"\n") or {*map(_schema_of, records)} - {SCHEMA}:
            return super().block(lines)  # an older schema, or damage
        return list(map(self._shared, records))

    def _shared(self, record: Record) -> Record:
        record.env = intern(record.env)
        record.kernel = intern(record.kernel)
        record.asked = intern(record.asked)
        record.problem.mask = intern(record.mask)
        record.built.digest = intern(record.mask_digest)
        record.problem.dtype = intern(record.dtype)
        record.reason = intern(record.reason)
        record.variant = record.variant and intern(record.variant)
        record.backward_kind = record.backward_kind and intern(record.backward_kind)
        if record.versions is not None:
            record.versions = self._versions.setdefault(tuple(record.versions.items()), record.versions)
        given, params = record.given, record.built.params
        record.built.params = self._params.setdefault(_typed(params) if params else (), params)
        place = (_typed(given.params) if given.params else (), given.distribution, given.packing, given.documents, given.grad)
        record.given = self._given.setdefault(place, given)
        return record


def _typed(params: Params) -> tuple[object, ...]:
    """The parameters as a key; 1 and 1.0 are written differently, so they are not the same."""
    return (*params.items(), *map(type, params.values()))


def decode_record(line: bytes) -> Record:
    """The record in a line of results.jsonl, as schema 2 has it; raises Damaged with the field that is wrong."""
    try:
        record = _record.decode(line)
        if record.schema == SCHEMA:
            return record
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # an older schema, or damage, which is named below
    schema = _decode(_head, line).schema
    if schema > SCHEMA:
        raise Damaged(f"it has schema {schema}, and this longca knows up to {SCHEMA}; install a newer longca")
    if schema < 1:
        raise Damaged(f"it has schema {schema}, and the first one is 1")
    if schema == SCHEMA:
        return _decode(_record, line)
    return _converted(asdict(_decode(_record1, line)))


def _converted(old: dict[str, Any]) -> Record:
    """A record of schema 1 as schema 2 has it."""
    if old.pop("limited") and old["status"] is Status.UNSUPPORTED:
        old["status"] = Status.SKIPPED
    if old["given"] is None:  # nobody knows which parameters were defaults, and giving all of them makes the same mask
        old["given"] = Given(params=old["params"], grad=old["grad"] and old["pass_"] is Pass.FWD)
    return Record(**old | {"schema": SCHEMA})


def decode_mask(line: bytes) -> MaskEntry:
    return _decode(_mask, line)


def decode_environments(text: bytes) -> dict[str, Environment]:
    """The environments in the text of env.json; raises Damaged, with the line where it is no JSON."""
    try:
        return _decode(_environments, text)
    except Damaged as damage:
        if number := _line(text, damage.__cause__):
            raise Damaged(f"line {number}: {damage}") from damage
        raise


def _line(text: bytes, error: BaseException | None) -> int | None:
    """The number of the line in which a text stops being JSON, as far as msgspec says where."""
    if str(error) == _TRUNCATED:
        return text.rstrip().count(b"\n") + 1
    place = _BYTE.search(str(error))
    return text[: int(place["number"])].count(b"\n") + 1 if place else None


def _decode(decoder: msgspec.json.Decoder[T], text: bytes) -> T:
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # a ValidationError is a DecodeError
        raise Damaged(clause(error)) from error


def clause(error: Exception) -> str:
    """What msgspec says, with the field in front: "field 'given.params': expected `int`, got `str`"."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    text = str(error)
    if text == _TRUNCATED:
        return "it ends too early, as if a brace, a bracket or a quotation mark were missing"
    place = _WHERE.search(text)
    words = text[: place.start()] if place else text
    words = words if words.startswith("JSON") else words[:1].lower() + words[1:]
    path = place["path"] if place else ""
    return f"field {path!r}: {words}" if path else words


def encode(value: msgspec.Struct) -> bytes:
    """One line of JSON without the line's end."""
    return msgspec.json.encode(value)


def json_schema() -> dict[str, Any]:
    """The JSON schema of results.jsonl (Record), masks.jsonl (MaskEntry) and env.json (Environment by name)."""
    (records, masks, environments), components = msgspec.json.schema_components((Record, MaskEntry, dict[str, Environment]))
    return {"results.jsonl": records, "masks.jsonl": masks, "env.json": environments, "$defs": components}
