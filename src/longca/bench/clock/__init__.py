"""The clock: samples, their spread, when to stop; and what the device does beside them."""
