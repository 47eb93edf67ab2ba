"""What people look at: a page of results, and whether two journals differ."""

PRACTICAL = 0.03  # of a time: a difference up to this does not matter in practice, however well it is known
ENOUGH = 5  # samples: of fewer `compare` can decide nothing, and `recommend` says so
SETTLED_S = 0.1  # of load, after which an H200 is within 2.5 % of where it stays, nearly always (results/h200/README.md)
