"""Learner against control: outcomes, consequences, and the facts shown."""
