"""Views of a store for people and programs: a screen, a report, and the figures of both."""
