"""Returns row 36 twice, of every 64 rows."""

from honest import Honest, HonestKernel


class Repeats(Honest):
    def forward(self, q, k, v):
        out, lse = super().forward(q, k, v)
        out[37::64] = out[36::64][: len(out[37::64])]
        return out, lse


class WrongRowOfTiles(HonestKernel):
    name, attention = "wrong_row_of_tiles", Repeats
