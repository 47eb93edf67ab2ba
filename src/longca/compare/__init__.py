"""Comparing results: two journals cell by cell, or one kernel with the best other of its journal."""
