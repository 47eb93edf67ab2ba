"""An own forward in TileLang."""
