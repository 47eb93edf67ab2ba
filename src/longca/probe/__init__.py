"""Does a model honour its mask? Tokens are changed one by one, and the outputs that change are compared with the mask."""
