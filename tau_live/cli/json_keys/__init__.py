"""What the JSON of each command holds, told once, for pages and for tests."""
