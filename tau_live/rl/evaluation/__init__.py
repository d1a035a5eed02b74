"""What a policy would have earned, estimated from another policy's logged decisions.

``evaluate`` takes each decision for itself, ``evaluate_rollouts`` all steps of a rollout together;
``cross_fitted`` adds the reward model that some of the formulas need. Below the floors of
``Support`` they refuse to say a number.
"""

from tau_live.rl.evaluation.estimators import Estimator
from tau_live.rl.evaluation.fitting import cross_fitted, folds_of
from tau_live.rl.evaluation.intervals import Interval
from tau_live.rl.evaluation.log import Log, Offered, Reason
from tau_live.rl.evaluation.report import (
    INSUFFICIENT,
    Estimate,
    Evaluation,
    EvaluationConfig,
    evaluate,
    evaluate_rollouts,
)
from tau_live.rl.evaluation.support import Support, Weights

__all__ = [
    "INSUFFICIENT",
    "Estimate",
    "Estimator",
    "Evaluation",
    "EvaluationConfig",
    "Interval",
    "Log",
    "Offered",
    "Reason",
    "Support",
    "Weights",
    "cross_fitted",
    "evaluate",
    "evaluate_rollouts",
    "folds_of",
]
