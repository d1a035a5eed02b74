"""Adapters: one module for each agent host, each turning its callbacks into our events."""
