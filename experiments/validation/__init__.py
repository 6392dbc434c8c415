"""Replays finished runs and compares them with their records: `rlflow validate`."""
