"""What a rollout was worth: inferred, made safe, and joined with what was reported."""
