"""Communicators of ranks: torch.distributed, threads of one process, a recorder, and one that sends nothing."""
