"""Document lengths: four distributions, three packers, and files of a user's own.

>>> from longca.lengths import draw
>>> draw(1024, seed=42)
[353, 559, 102, 10]
"""

from longca.lengths.distributions import Distribution, default_for, find, named, names
from longca.lengths.files import read_lengths
from longca.lengths.packers import chunked, cut_note, draw, fit, mixed, pack

__all__ = ["Distribution", "chunked", "cut_note", "default_for", "draw", "find", "fit", "mixed", "named", "names", "pack", "read_lengths"]
