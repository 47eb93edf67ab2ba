"""Measuring: the check, the clock, and what is made of them."""
