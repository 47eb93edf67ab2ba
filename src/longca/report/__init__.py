"""What people look at: a page of results, and whether two journals differ."""
