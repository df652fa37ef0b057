"""Telemetry becomes findings, findings become hypotheses. A plot proposes; it never proves."""

# isort: off
# The order of registration is the order of causes (docs/diagnosis.md, section 1, (a)).
from orchestrator.diagnose import (  # noqa: F401
    structure,
    evaluation,
    sequences,
    numerics,
    data,
    initialisation,
    regularisation,
    stability,
    depth,
    clipping,
    optimisation,
    generalisation,
    throughput,
)

# isort: on
from orchestrator.diagnose.hypotheses import hypothesise
from orchestrator.diagnose.registry import RULES, Rule, rule
from orchestrator.diagnose.remedies import blocking
from orchestrator.diagnose.seeds import diagnose, missing

__all__ = ["RULES", "Rule", "blocking", "diagnose", "hypothesise", "missing", "rule"]
