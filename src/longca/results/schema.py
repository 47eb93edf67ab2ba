"""Decoding lines of journals, those of schema 2 included, and the JSON schema of what is written."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from longca.errors import BadInput
from longca.results import schema2
from longca.results.record import SCHEMA, Environment, MaskEntry, Record

T = TypeVar("T")


class _Head(msgspec.Struct):
    schema: int


_head, _record, _mask = msgspec.json.Decoder(_Head), msgspec.json.Decoder(Record), msgspec.json.Decoder(MaskEntry)
_environments = msgspec.json.Decoder(dict[str, Environment])
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # a ValidationError is a DecodeError


class Damaged(BadInput):
    """A line or a file that is not what the schema says; the message is a clause without the place."""


class Newer(BadInput):
    """A line of a schema that this longca does not know; the message begins with a verb."""


def decode_record(line: bytes) -> Record:
    """The record in a line of results.jsonl; raises Damaged with what is wrong."""
    schema = _decode(_head, line).schema
    if schema == SCHEMA:
        return _decode(_record, line)
    if schema > SCHEMA:
        raise Newer(f"has schema {schema}, and this longca reads up to schema {SCHEMA}; install a newer longca.")
    if schema < schema2.SCHEMA:
        raise Damaged(f"it has schema {schema}, and this longca reads schemas from {schema2.SCHEMA} on; measure it again")
    try:
        return msgspec.convert(schema2.converted(msgspec.json.decode(line)), Record)
    except (*UNDECODABLE, KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"it is no record of schema {schema}: {error}") from error


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
