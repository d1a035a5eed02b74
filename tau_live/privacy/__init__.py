"""Secrets and unwanted content: how they are recognised and removed."""
