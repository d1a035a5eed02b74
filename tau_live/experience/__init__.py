"""Training-free GRPO: lessons in words, each measured, in place of weights."""
