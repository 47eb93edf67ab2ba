"""Shows what a mask object offers: `python examples/masks.py`."""

from longca import masks
from longca.errors import Refused

mask = masks.causal_document(8192, seed=42)
print(mask)
print("documents:", mask.documents)

# two ranks of a ring, each with one or two pieces of the sequence: which keys of the second rank the queries of the first rank see
mine, theirs = [(0, 2048), (6144, 8192)], [(2048, 6144)]
step = mask.rows(mine).cols(theirs)
print("one step of a ring:", step, "area", step.area)
print("all steps at once:", mask.pair_areas([mine, theirs], [mine, theirs]).tolist())

# the formats that kernels use
varlen = mask.varlen()
print(f"varlen: {len(varlen.cu_q) - 1} documents, window {varlen.left}, {varlen.right}")
starts, ends = mask.row_intervals()
print("row 1000 sees the keys from", starts[0, 1000], "to", ends[0, 1000])
columns = mask.column_intervals()
print("column intervals:", "causal," if columns.causal else "not causal,", columns.rows.shape[1], "per key")
print("slices:", len(mask.slices().types))
tiles = mask.tiles(128, 128)
print(f"tiles of 128x128: {tiles.full} full, {tiles.partial} partial, of {tiles.grid[0] * tiles.grid[1]}")

# algebra: exact, and bands again
window = masks.sliding_window(8192, w=512)
print("a window in documents:", mask & window)
print("what it hides:", (mask - window).area, "of", mask.area, "pairs")
assert mask & window == masks.build("causal_document & sliding_window(w=512)", 8192, seed=42)

# from other formats, and back
packed = masks.from_position_ids(mask.position_ids(), causal=True)
slices = masks.from_slices(*mask.slices())
flashmask = masks.from_column_intervals(columns.rows, causal=columns.causal)
assert packed == slices == flashmask == masks.from_cu_seqlens(varlen.cu_q, causal=True) == mask
short = masks.from_dense(masks.causal(512).dense())
print("a matrix as bands:", short.table)

# a format that cannot represent a mask raises an error
try:
    masks.prefix_lm_causal(8192, p=1000).varlen()
except Refused as reason:
    print("prefix_lm_causal as varlen:", reason)
