"""What a project says of itself, read and never run: its hosts, its agents, what it could decide.

Sources are parsed, not imported; packages are asked for their metadata. Everything is bounded, and
what was not looked at is said.
"""
