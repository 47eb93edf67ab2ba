"""What people look at: a page of results, and whether two journals differ."""

PRACTICAL = 0.03  # of a time: a difference up to this does not matter in practice, however well it is known
ENOUGH = 5  # samples: of fewer `compare` can decide nothing, and `recommend` says so
SETTLED_S = 0.08  # of load, after which an H200 is within 2.5 % of where it stays (results/h200/settling.txt)
