"""What a policy would have earned: from the store's decisions, or from a log from elsewhere."""
