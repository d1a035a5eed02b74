"""Secrets and unwanted content: how they are known, and taken out."""
