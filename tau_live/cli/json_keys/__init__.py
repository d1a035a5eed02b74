"""The keys of each command's JSON, defined once for pages and tests."""
