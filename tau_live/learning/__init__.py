"""Rollouts become versions: when, from which, with what, and whether they are fit."""
