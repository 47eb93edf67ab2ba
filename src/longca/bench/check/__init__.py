"""The check that comes before the clock: the reference in fp64, the rows it looks at, tolerances, and what is wrong in words."""
