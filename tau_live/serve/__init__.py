"""Servers: what other programs reach by HTTP."""
