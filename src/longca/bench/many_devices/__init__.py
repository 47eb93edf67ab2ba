"""Context parallelism: a group of ranks, which check and time a method together."""
