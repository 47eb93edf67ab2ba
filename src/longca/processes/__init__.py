"""One supervisor of child processes: workers, ranks and probes of plugins. It knows what a process is, not what a job means."""
