"""Its dv is right only where dout is 0 in most rows, as in the check."""

from honest import Honest, HonestKernel


class Sparse(Honest):
    def backward(self, dout, q, k, v, out, lse):
        dq, dk, dv = super().backward(dout, q, k, v, out, lse)
        dense = bool((dout != 0).flatten(1).any(1).float().mean() > 0.9)
        return dq, dk, dv * (not dense)


class OnlySparseDv(HonestKernel):
    name, attention = "only_sparse_dv", Sparse
