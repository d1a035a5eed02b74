"""Runs and decisions in the host's thread, and the versions that serve them."""
