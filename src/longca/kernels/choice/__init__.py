"""How the kernel `best` chooses: classes of calls, candidates, measured records, autotuning and what is kept of it."""
