"""The folder that ``tau-live run`` puts first on ``PYTHONPATH``."""
