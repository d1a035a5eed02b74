"""Off-policy evaluation: from the store's decisions, or from a log from elsewhere."""
