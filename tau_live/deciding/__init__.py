"""Options in, decision out, in memory: the arm of a rollout, and what serves it."""
