"""The cuDNN frontend: its attention graph, its interval attention and its block-sparse attention."""
