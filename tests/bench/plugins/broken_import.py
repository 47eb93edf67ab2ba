"""A plugin that cannot even be imported."""

raise RuntimeError("I need a library that nobody has")
