"""The learning core: numpy and the standard library only; no clock, no files, no global state."""
