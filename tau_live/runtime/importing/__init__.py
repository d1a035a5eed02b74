"""Imports logs of other systems into a store; see ``log``."""
