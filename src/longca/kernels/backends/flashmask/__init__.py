"""FlashMask: the port for torch and the original in Paddle."""
