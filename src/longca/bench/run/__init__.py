"""The loop of a run: jobs to an executor, records to the journal; retries, environment, progress."""
