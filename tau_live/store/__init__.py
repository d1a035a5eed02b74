"""The store, role by role; ``store.sqlite`` is its only backend."""
