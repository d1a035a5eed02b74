"""The running system of a process, the public door, and the ways in for logs and recordings."""
