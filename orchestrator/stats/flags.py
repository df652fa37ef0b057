"""Words a Comparison carries beside its numbers; a verdict, or its reader, needs to know them."""

IDENTICAL = "identical"
"""Every pair differs by nothing and shares its fate: the factor is probably not wired up."""

ZERO_VARIANCE = "zero_variance"
"""The differences do not vary at all, so t means nothing; the exact sign-flip p decides."""

COARSE = "coarse"
"""One step of the metric is a standard deviation of a difference, or more; the exact p decides."""

FRAGILE = "fragile"
"""p <= alpha, but the exact p is not, although five seeds or more would have allowed it."""

NEGLIGIBLE = "negligible"
"""The whole interval lies inside +-delta: what difference there is, nobody would act on."""

NOT_WORSE = "not_worse_by_delta"
"""The lower limit lies above -delta: the component the arm removes can be removed."""

VARIANCE_OUTLIER = "variance_outlier"
"""The arm's differences vary far more than the other arms'; only its own variance judges it."""

BASELINE_MISSING = "baseline_missing"
"""The arm has seeds the baseline lacks; they are unusable until the baseline is run on them."""
