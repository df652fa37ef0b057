"""Pure statistics on arrays: few seeds, seeds as blocks, one baseline. See docs/statistics.md.

Reading order: `dunnett` (reference distribution), `blocks` (additive fit, pooled variance),
`guarded` (the default test), `exact`, `effects`, `divergence`, `forecast`, `power`, `sequential`.
Only scipy.special is imported: it costs 0.2 s where scipy.stats costs 2.5 s.
"""
