"""Measuring: plan (which cells), check (is it right), clock (how fast), run (the loop), one device and many devices (who runs a job)."""
