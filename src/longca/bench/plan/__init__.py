"""Which cells a run has: suites, workloads, cells, jobs."""
