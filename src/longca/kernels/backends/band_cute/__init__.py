"""`band_cute`: an own Hopper backward for band masks in CuTe DSL, on the main backward kernel of FlashAttention-4."""
