"""What operators do: trials, pauses, the kill switch, and who may."""
