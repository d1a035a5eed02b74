"""The pairs of the test vectors A, B, D and G of the evidence protocol."""

BASELINE = [
    0.50, 0.40, 0.70, 0.60, 0.30, 0.80, 0.50, 0.60, 0.40, 0.70,
    0.20, 0.90, 0.50, 0.60, 0.30, 0.40, 0.80, 0.50, 0.60, 0.70,
]  # fmt: skip
TRAINED = [
    0.60, 0.55, 0.70, 0.75, 0.45, 0.80, 0.65, 0.60, 0.55, 0.80,
    0.40, 0.85, 0.60, 0.70, 0.45, 0.50, 0.80, 0.65, 0.70, 0.75,
]  # fmt: skip
DIFFERENCES = [round(after - before, 10) for before, after in zip(BASELINE, TRAINED, strict=True)]

BASELINE_PENALTIES = [0, 0, 0.1, 0, 0, 0.2, 0, 0, 0, 0.1, 0, 0, 0, 0.1, 0, 0, 0.2, 0, 0, 0]
TRAINED_PENALTIES = [0, 0, 0.1, 0, 0.1, 0.2, 0, 0, 0.1, 0.1, 0, 0, 0, 0.1, 0, 0, 0.2, 0, 0, 0.1]

TEN = [0.2, 0.1, -0.05, 0.3, 0.0, 0.15, 0.25, -0.1, 0.05, 0.2]

FIVE_BASELINE = [0.10, 0.15, 0.20, 0.18, 0.16]
FIVE_TRAINED = [0.32, 0.35, 0.31, 0.36, 0.33]
