"""Writes the table that the kernel `best` chooses by, from journals: python tools/choices.py [results/h200 ...]

Without folders it reads the shipped journals. `tests/results/test_choices.py` fails where the table does not follow from them.
"""

from __future__ import annotations

import argparse
import gzip

import msgspec

from longca.kernels.choice.records import SHIPPED
from longca.recommend.shipped import load
from longca.results.choices import table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("journals", nargs="*", help="folders; the shipped journals unless given")
    args = parser.parse_args()
    entries = table(load(args.journals or None))
    SHIPPED.write_bytes(gzip.compress(msgspec.json.encode(entries), mtime=0))
    print(f"wrote {len(entries)} entries to {SHIPPED}")


if __name__ == "__main__":
    main()
