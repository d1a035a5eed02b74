"""Off-policy evaluation: the value of a policy, from another policy's logged decisions.

``report.evaluate`` takes each decision for itself, ``report.evaluate_rollouts`` all steps of a
rollout together. Below the floors of ``Support`` they give no estimate.
"""
