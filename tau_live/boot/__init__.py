"""Attaching a process: one ``boot()``, its hosts, and the state of each adapter."""
