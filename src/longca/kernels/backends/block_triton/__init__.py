"""LongCA's own block-sparse attention in Triton."""
