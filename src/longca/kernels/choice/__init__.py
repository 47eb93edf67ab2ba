"""How the kernel `best` chooses: classes of calls, candidates, measured records, trials and what is kept of them."""
