"""Views of a store for people and programs: the status screen, the report, their figures."""
