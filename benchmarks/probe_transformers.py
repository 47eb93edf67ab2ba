"""Probes tiny models of transformers with packed batches, and writes what was found: `python benchmarks/probe_transformers.py`."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import longca
from longca.errors import LongcaError

TYPES = (
    *("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "olmo2", "olmo3", "phi3", "gpt_oss"),
    *("gpt2", "gpt_neox", "opt", "bloom", "falcon"),
)
ATTENTIONS = ("eager", "sdpa", "longca")
OUT = Path("results/probe/transformers.jsonl")


def probe(name: str, attention: str) -> dict[str, object]:
    row: dict[str, object] = {"type": name, "attention": attention, "mask": "causal_document", "seqlen": 192, "layers": 2}
    row |= {"transformers": version("transformers"), "torch": version("torch")}
    try:
        probed = longca.probe(f"hf:{name}:{attention}", "causal_document", 192, layers=2)
    except LongcaError as error:
        return row | {"verdict": "not probed", "text": str(error)}
    told = [finding for finding in probed.rows if not finding["backward"]] or probed.rows
    return row | {"verdict": "honoured" if probed.ok else told[0]["finding"], "text": told[0]["text"] if told else ""}


if __name__ == "__main__":
    rows = [probe(name, attention) for name in TYPES for attention in ATTENTIONS]
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for row in rows:
        print(f"{row['type']:12} {row['attention']:8} {row['verdict']:12} {row['text']}"[:200])
