"""Proofs of what `docs/reliability.md` promises: a quick tier, and a long one for releases."""
