"""Evidence that a stranger can recompute: suites, runs, proofs, and what checks and keeps them."""
