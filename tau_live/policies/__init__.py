"""Policies on disk: checkpoints, their bounds, their names, the reference's own."""
