"""Replays the recorded programs of all ranks on a model of a cluster."""
