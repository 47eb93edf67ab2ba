"""Rewrites PNG files with 64 colours: a quarter of the bytes, and the difference is hardly visible.

python tools/fewer_colours.py FILE...
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image


def reduce(file: Path) -> None:
    Image.open(file).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(file, optimize=True)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        reduce(Path(name))
