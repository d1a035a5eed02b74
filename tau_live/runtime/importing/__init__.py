"""Earlier logs of any system into a store; see ``log``."""
