"""Rules for logs that other tools wrote: few points, epochs as axis, no per-layer norms.

```python
diagnosis = logs.diagnose_log(readers.read_log(path), source=str(path))
diagnosis.label, diagnosis.findings
```
"""

# isort: off
# The order of registration is the order of causes, and of labels (docs/diagnosis.md).
from orchestrator.diagnose.logs import (  # noqa: F401
    finiteness,
    blowups,
    generalisation,
    evaluation,
    stagnation,
    clipping,
)

# isort: on
from orchestrator.diagnose.logs.contract import as_json, refused
from orchestrator.diagnose.logs.registry import LOG_RULES, LogRule, log_rule
from orchestrator.diagnose.logs.skeleton import campaign_file
from orchestrator.diagnose.logs.verdict import diagnose_log, diagnose_own

__all__ = [
    "LOG_RULES",
    "LogRule",
    "as_json",
    "campaign_file",
    "diagnose_log",
    "diagnose_own",
    "log_rule",
    "refused",
]
