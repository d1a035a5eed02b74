"""Where everything is kept: Protocols by role in ``roles``, SQLite in ``sqlite``."""
