"""Rollouts become versions: when an update is due, the update, evaluation, promotion."""
