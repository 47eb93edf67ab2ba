"""LongCA in other people's training code; each module needs its package, and nothing else here imports it."""
