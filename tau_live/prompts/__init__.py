"""Prompt optimization: candidates are executed on tasks, and adopted only with paired evidence."""
