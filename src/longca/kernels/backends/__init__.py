"""Adapters to attention libraries: one file, or one folder, per library."""
