"""One run as the runtime knows it: its handle, its events, who chooses in it."""
