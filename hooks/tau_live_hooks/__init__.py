"""The adapters: each turns the callbacks of one agent host into events, and asks for decisions."""
