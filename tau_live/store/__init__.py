"""What every store can do, role by role; ``store.sqlite`` is the one there is."""
