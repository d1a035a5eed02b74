"""The running system of a process, the public API, and imports of logs and recordings."""
