"""Text from ranks, whoever wrote it: decoding, tail, search, levels, arrival times, deduplication, rows. It knows nothing of jobs."""
