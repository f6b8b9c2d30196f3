"""Text of ranks, from any program: decoding, tail, search, levels, arrival times, deduplication, rows. Independent of jobs."""
