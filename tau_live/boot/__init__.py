"""Attaching a process: one ``boot()``, the hosts that are there, what each adapter is doing."""
