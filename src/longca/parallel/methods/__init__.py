"""The methods of context parallelism, one file each."""
