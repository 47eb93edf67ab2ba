"""Context parallelism: one attention over many ranks, under any static mask, with any kernel."""
