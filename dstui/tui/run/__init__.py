"""The run screen: head, ranks, log and diagnosis of a job."""
