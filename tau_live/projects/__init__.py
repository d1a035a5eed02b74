"""A project's sources, read and never run: its hosts, its agents, its possible decisions.

Sources are parsed, not imported; packages are asked for their metadata. Everything is bounded, and
what was not looked at is said.
"""
