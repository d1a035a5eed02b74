"""Alerts: the kinds, when each is raised, and how it is delivered."""
