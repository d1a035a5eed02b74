"""Learner against control: what became of rollouts, what follows, what is told."""
