"""What ranks talk through: torch.distributed, threads of one process, a recorder, or nothing at all."""
