"""Decoding lines of journals, and the JSON schema of what is written."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from longca.errors import BadInput
from longca.results.record import SCHEMA, Environment, MaskEntry, Record

T = TypeVar("T")


class _Head(msgspec.Struct):
    schema: int


_head, _record, _mask = msgspec.json.Decoder(_Head), msgspec.json.Decoder(Record), msgspec.json.Decoder(MaskEntry)
_environments = msgspec.json.Decoder(dict[str, Environment])
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # a ValidationError is a DecodeError


class Damaged(BadInput):
    """A line or a file that is not what the schema says; the message is a clause without the place."""


def decode_record(line: bytes) -> Record:
    """The record in a line of results.jsonl; raises Damaged with what is wrong."""
    try:
        record = _record.decode(line)
    except UNDECODABLE as error:
        _refuse_schema(_decode(_head, line).schema)
        raise Damaged(str(error)) from error
    _refuse_schema(record.schema)
    return record


def _refuse_schema(schema: int) -> None:
    if schema > SCHEMA:
        raise Damaged(f"it has schema {schema}, and this longca reads schema {SCHEMA}; install a newer longca")
    if schema < SCHEMA:
        raise Damaged(f"it has schema {schema}, and this longca reads schema {SCHEMA}; measure it again")


def decode_mask(line: bytes) -> MaskEntry:
    return _decode(_mask, line)


def decode_environments(text: bytes) -> dict[str, Environment]:
    """The environments in the text of env.json; raises Damaged with what is wrong."""
    return _decode(_environments, text)


def _decode(decoder: msgspec.json.Decoder[T], text: bytes) -> T:
    try:
        return decoder.decode(text)
    except UNDECODABLE as error:
        raise Damaged(str(error)) from error


def encode(value: msgspec.Struct) -> bytes:
    """One line of JSON without the line's end."""
    return msgspec.json.encode(value)


def json_schema() -> dict[str, Any]:
    """The JSON schema of results.jsonl (Record), masks.jsonl (MaskEntry) and env.json (Environment by name)."""
    (records, masks, environments), components = msgspec.json.schema_components((Record, MaskEntry, dict[str, Environment]))
    return {"results.jsonl": records, "masks.jsonl": masks, "env.json": environments, "$defs": components}
