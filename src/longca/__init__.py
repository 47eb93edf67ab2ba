"""LongCA: measuring attention for long contexts."""

__version__ = "0.1.0"
