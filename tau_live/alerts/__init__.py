"""What somebody should hear of: the kinds, when they are so, and how they are told."""
