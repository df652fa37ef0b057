"""Every type that crosses a door between two rooms. All frozen; see docs/design.md for the walk.

Life of a trial:

    planned --launch--> DONE | DIVERGED | TIMED_OUT        results: they count in the comparison
                    \\-> FAILED | LOST --retry--> ...       accidents: retried, then reported

Scores are in the metric's own unit and direction; only `Comparison` is oriented (positive =
better).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import numpy.typing as npt

Scalar = str | int | float | bool | None
"""A value a config key can hold and an arm can set."""

Overrides = tuple[tuple[str, Scalar], ...]
"""What an arm changes: (dotted key, value) pairs, sorted by key, no key twice."""

FEWEST_SEEDS = 3
"""Below it no claim is made: two nearly equal differences give t = 51 on one degree of freedom."""

CONFIRMING = 5, 15
"""Fewest and most seeds of a confirmation that takes as many as the screened gain needs: below, the
gain would hardly be known; what more than 15 find was not worth screening for."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Direction(Enum):
    """Which way a metric is good, or which way a factor or a signal is moved."""

    MIN = "min"
    MAX = "max"


class Move(Enum):
    """Which way a hypothesis moves its factor, or predicts a signal to go."""

    UP = "up"
    DOWN = "down"
    EITHER = "either"


class Status(Enum):
    """How a trial ended; decided from records on disk, never from an exit code."""

    DONE = "DONE"
    DIVERGED = "DIVERGED"
    TIMED_OUT = "TIMED_OUT"
    FAILED = "FAILED"
    LOST = "LOST"

    @property
    def is_result(self) -> bool:
        """Whether the outcome counts in a comparison; the others are accidents and are retried."""
        return self in (Status.DONE, Status.DIVERGED, Status.TIMED_OUT)


class Role(Enum):
    """What a factor is for (Google tuning playbook, Godbole et al. 2023)."""

    SCIENTIFIC = "scientific"
    NUISANCE = "nuisance"
    FIXED = "fixed"


class Scale(Enum):
    """On which scale the levels of a factor are spread."""

    LOG = "log"
    LINEAR = "linear"


class Policy(Enum):
    """When a screening winner becomes the new baseline.

    PRODUCT: once fresh seeds confirm it, so that each adoption is proven. OPTIMISE: at once, as the
    best of its round, unproven; only the headline then claims anything.
    """

    PRODUCT = "product"
    OPTIMISE = "optimise"


class Level(Enum):
    """How much a trial records, each level more than the one before (docs/monitoring.md).

    OFF: what the program logs. NORMS: numbers of each optimizer step. DEFAULT: layers too, on
    sampled steps. FULL: whatever can be known.
    """

    OFF = "off"
    NORMS = "norms"
    DEFAULT = "default"
    FULL = "full"


# --- the question -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Metric:
    """What arms are ranked on.

    `delta` is the smallest difference worth acting on, `resolution` the step of the metric (1/N
    for an accuracy over N examples), both in the metric's unit; `test_name` is the same quantity
    on the test split, read once, for the headline.
    """

    name: str
    direction: Direction
    unit: str = ""
    delta: float | None = None
    resolution: float = 0.0
    test_name: str | None = None


@dataclass(frozen=True, slots=True)
class Factor:
    """One config key that may vary.

    `name` is ours (lr, weight_decay, ...), `key` the user's, dotted.

    Empty `levels`: the planner's rule chooses them. `moves_with` lists other keys an arm may
    change along.
    """

    name: str
    key: str
    baseline: Scalar
    levels: tuple[Scalar, ...] = ()
    scale: Scale = Scale.LINEAR
    role: Role = Role.SCIENTIFIC
    moves_with: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Training:
    """The user's program. `kind` is "call" or "script"; `target` is `module.function` or a file.

    `config` is the baseline's config as YAML text, interpolations unresolved; `folder` is where
    exp.yaml lies (absolute) and is put on the module search path; `code` is a fingerprint of the
    program's sources, `data` the user's word for the data version.
    """

    kind: str
    target: str
    config: str
    seed_key: str
    folder: str
    code: str
    data: str = ""


@dataclass(frozen=True, slots=True)
class Budget:
    """What may be spent: minutes per trial, trials over the campaign, attempts per trial."""

    rounds: int
    trials: int
    trial_minutes: float
    attempts: int


@dataclass(frozen=True, slots=True)
class Protocol:
    """The statistics, fixed before the first trial (docs/statistics.md).

    `alpha` is one-sided per direction, family-wise over the arms of an ablation and over all its
    `looks`: the ascending numbers of seeds per arm at which it is judged (one number: a fixed
    design). `max_ablations` is H of the product rule; `confirm_seeds` and `headline_seeds` are
    numbers of seeds per arm, `confirm_seeds` None where each confirmation takes as many as the
    screened gain needs.
    """

    alpha: float
    looks: tuple[int, ...]
    confirm_seeds: int | None
    headline_seeds: int
    max_ablations: int
    max_hypotheses: int
    first_seed: int = 0
    policy: Policy = Policy.PRODUCT

    @property
    def alpha_screen(self) -> float:
        """Family-wise level of the screening stage: min(1/4, 1/H)."""
        return min(0.25, 1.0 / self.max_ablations)


@dataclass(frozen=True, slots=True)
class Monitoring:
    """How much the trials record: `level`, and what is measured on every `every`-th optimizer step.

    That is layers; at NORMS, which has none, the norm itself. `histograms` are taken every so many
    steps, at FULL.
    """

    level: Level = Level.DEFAULT
    every: int | None = None
    histograms: int = 1000

    @property
    def interval(self) -> int:
        """Steps from one measurement to the next: one of norms and ten of layers, unless said."""
        return self.every or (1 if self.level is Level.NORMS else 10)


@dataclass(frozen=True, slots=True)
class Campaign:
    """One question about one training program, as read from exp.yaml and frozen on disk.

    `folder` is the campaign's own, absolute. `launcher_overrides` are `hydra.launcher.*` tokens,
    passed through. `skip_rules` names the rules to leave out, `ask` the factors to be tested
    whatever the diagnosis finds.
    """

    name: str
    folder: str
    training: Training
    factors: tuple[Factor, ...]
    metric: Metric
    budget: Budget
    protocol: Protocol
    launcher: str = "isolated"
    launcher_overrides: tuple[str, ...] = ()
    workers: int = 1
    tracking_uri: str | None = None
    skip_rules: tuple[str, ...] = ()
    monitor: Monitoring = Monitoring()
    ask: tuple[str, ...] = ()


# --- what a trial recorded ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One quantity over the optimizer step.

    `steps` [n] ascending, `values` [n] may hold NaN and inf.
    """

    steps: Ints
    values: Floats
    unit: str = ""

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch of an optimizer step, number `index` in it, as the program told of it.

    `samples` and `tokens` are those that counted in the loss; "" and None where it did not tell.
    """

    step: int
    index: int
    id: str
    samples: float | None = None
    tokens: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Histograms:
    """How large the elements of a layer's gradient, parameter or update were, at some steps.

    `steps` [n]; `counts` [n, bins] of magnitudes in [edges[i], edges[i + 1]), the first and the
    last bin with what is beyond; `zeros` [n] and `nonfinite` [n] are counted apart. `edges`
    [bins + 1] are powers of two.
    """

    steps: Ints
    edges: Floats
    counts: Ints
    zeros: Ints
    nonfinite: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Telemetry:
    """All series of one trial, aligned on the optimizer step, and its header of plain facts.

    Names: `train/loss` (each step, as trained), `probe/...` (a fixed train subset, eval mode),
    `val/...`, `test/...`, `lr` (group 0; others `lr/1`, ...), `grad_norm` (total, before
    clipping), `clip_coefficient` (1 = not clipped), `max_norm`, and per layer
    `update_ratio/<layer>`, `param_norm/<layer>`, ... Header keys used: `optimizer`, `steps`,
    `weight_layers` (comma-separated names of weight matrices). `batches` are those of the steps up
    to a spike of the gradient norm or to a step that was not finite. Histograms are called
    `grad/<layer>`, `param/<layer>` and `update/<layer>`.
    """

    series: Mapping[str, Series]
    header: Mapping[str, Scalar] = field(default_factory=dict)
    batches: tuple[Batch, ...] = ()
    histograms: Mapping[str, Histograms] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Series:
        return self.series[name]

    def __contains__(self, name: str) -> bool:
        return name in self.series

    def layers(self, quantity: str) -> dict[str, Series]:
        """Series of `quantity` per layer, by layer name, in the model's order."""
        prefix = quantity + "/"
        return {n[len(prefix) :]: s for n, s in self.series.items() if n.startswith(prefix)}


@dataclass(frozen=True, slots=True)
class Signal:
    """One scalar computed from a Telemetry by a named, sourced formula in telemetry/signals.py."""

    name: str
    value: float
    unit: str


# --- what it may mean -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule fired: what was seen, where, how strongly, what could mimic it. No advice.

    `severity` in [0, 1]; `steps` first and last; `seeds_fired`/`seeds_seen` when several trials
    were read; `consequences` are findings of other rules that this one explains.
    """

    rule: str
    severity: float
    summary: str
    steps: tuple[int, int]
    layer: str | None = None
    evidence: Mapping[str, float | str] = field(default_factory=dict)
    confounders: tuple[str, ...] = ()
    consequences: tuple[str, ...] = ()
    seeds_fired: int = 1
    seeds_seen: int = 1


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """Moving `factor` by `move` improves the metric *and* moves `signal` by `signal_move`."""

    finding: str
    factor: str
    move: Move
    claim: str
    why: str
    signal: str
    signal_move: Move


# --- the experiment -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arm:
    """One level of a factor: (key, value) overrides of the *original* config, sorted by key.

    After an adoption every arm, the baseline too, carries the adopted overrides. `config` is the
    resolved config without seed as canonical JSON (`launch.resolve`), filled in when the plan is
    frozen.
    """

    name: str
    overrides: Overrides = ()
    config: str = ""


@dataclass(frozen=True, slots=True)
class Ablation:
    """The experiment for one hypothesis: `arms` vary one factor, `Plan.baseline` is the control."""

    name: str
    hypothesis: Hypothesis
    factor: Factor
    arms: tuple[Arm, ...]


@dataclass(frozen=True, slots=True)
class ClipRatio:
    """Share of steps whose gradient norm exceeds a threshold, with a 90 % interval."""

    low: float
    median: float
    high: float


@dataclass(frozen=True, slots=True)
class ClipStage:
    """What is predicted for the optimizer steps `first` to `last` under a threshold.

    `level` is the median gradient norm there, in the loss's unit, `lr` the median learning rate
    (None: not recorded).
    """

    first: int
    last: int
    ratio: ClipRatio
    level: float
    lr: float | None = None


@dataclass(frozen=True, slots=True)
class ClipForecast:
    """What a plan predicts of an arm that clips at `max_norm`, stage by stage (docs/clip.md)."""

    arm: str
    max_norm: float
    stages: tuple[ClipStage, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The ablations of a round with all that verdicts depend on, fixed before the first trial.

    `seeds` are those of the last look, of which the look at n takes the first n; `looks` empty
    means one look at all of them. `confirm_seeds` are the most a confirmation may take,
    `confirm_from` the fewest (0: all of them). `delta` is the metric's, or the default from the
    baseline's earlier seeds where the user named none and there are enough. `clipping` predicts the
    clip ratios of arms.
    """

    round: int
    baseline: Arm
    ablations: tuple[Ablation, ...]
    seeds: tuple[int, ...]
    confirm_seeds: tuple[int, ...]
    alpha: float
    alpha_screen: float
    test: str = "guarded block Dunnett"
    notes: tuple[str, ...] = ()
    looks: tuple[int, ...] = ()
    confirm_from: int = 0
    delta: float | None = None
    clipping: tuple[ClipForecast, ...] = ()

    def page_of(self, ablation: Ablation) -> str:
        """The name of an ablation's page: rounds may test a factor again under the same name."""
        return re.sub(r"[^\w.=-]", "_", f"r{self.round}-{ablation.name}")


@dataclass(frozen=True, slots=True)
class Trial:
    """One arm with one seed: one Hydra job, one process, one folder.

    `identity` is the hash of resolved config, code, data and seed; `folder` is absolute and ends
    in the identity.
    """

    identity: str
    arm: str
    seed: int
    overrides: Overrides
    config: str
    folder: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a trial ended.

    `metrics` holds the last value of each logged metric; `reason` says why it is not DONE.
    `started` is the unix time at which the last attempt began, 0 where nobody knows.
    """

    identity: str
    status: Status
    metrics: Mapping[str, float]
    seconds: float
    attempts: int
    reason: str = ""
    started: float = 0.0


# --- what came out ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Interval:
    """Closed interval in the metric's unit; infinite ends say that nothing is known."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """One arm against the baseline over common seeds, oriented so that positive is better.

    p-values are one-sided and adjusted for the family (step-down); `p_exact_*` are None where the
    exact test cannot be run (incomplete rows, n > 12). NaN marks what is undefined at this n.
    Formulas: docs/statistics.md.
    `mean` and `sd` are of the arm's own finite runs, in the metric's own direction. `look` is the
    one (from 1) whose numbers these are: an arm that ended early keeps its last.
    """

    arm: str
    n_pairs: int
    n_diverged: int
    n_only_arm_diverged: int
    n_only_baseline_diverged: int
    mean: float
    mean_difference: float
    se: float
    t: float
    p_better: float
    p_worse: float
    p_exact_better: float | None
    p_exact_worse: float | None
    interval: Interval
    p_equivalent: float | None
    hedges_g: float
    glass_delta: float
    probability_superior: float
    pooled: bool
    worst_seed_difference: float
    flags: tuple[str, ...] = ()
    p_diverged: float = 1.0
    sd: float = float("nan")
    look: int = 1


@dataclass(frozen=True, slots=True)
class Comparisons:
    """All arms of one ablation against its baseline, and what they share.

    `nu` is the pooled residual's degrees of freedom (0: nothing pooled), `sigma` its standard
    deviation, `seed_correlation` the intra-class correlation of runs that share a seed.
    `alpha` is spent over all `looks` (numbers of seeds; empty: one look), of which this is number
    `look`, from 1; `levels` are the levels of each.
    """

    metric: Metric
    alpha: float
    k: int
    n: int
    nu: float
    sigma: float
    critical_value: float
    seed_correlation: float
    baseline_mean: float
    baseline_sd: float
    baseline_n: int
    arms: tuple[Comparison, ...]
    method: str = "guarded block Dunnett"
    baseline: str = "baseline"
    looks: tuple[int, ...] = ()
    levels: tuple[float, ...] = ()
    look: int = 1

    def level_of(self, arm: Comparison) -> float:
        """The level of the look whose numbers `arm` has; alpha where one looks once."""
        return self.levels[arm.look - 1] if self.levels else self.alpha

    def seeds_of(self, arm: Comparison) -> int:
        """The number of seeds planned for the look whose numbers `arm` has."""
        return self.looks[arm.look - 1] if self.looks else self.n


class Call(Enum):
    """The verdict on one arm."""

    BETTER = "better"
    WORSE = "worse"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"
    UNSTABLE = "unstable"
    FAILED = "failed"


class Support(Enum):
    """The verdict on one hypothesis: metric *and* mechanism."""

    SUPPORTED = "supported"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said of one arm, why, and what to do next.

    `seeds_needed` is (N, N+) more seeds, or None. `is_dropped`: no more seeds were run because a
    gain worth having had become unlikely; such an arm is always inconclusive.
    """

    arm: str
    call: Call
    reason: str
    next_act: str
    seeds_needed: tuple[int, int] | None = None
    is_candidate: bool = False
    is_dropped: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at an ablation told: all its arms, judged, and those that get more seeds.

    An arm that ended at an earlier look keeps that look's comparison and verdict.
    """

    comparisons: Comparisons
    verdicts: tuple[Verdict, ...]
    going_on: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AblationResult:
    """One ablation, compared and judged.

    `mechanism` compares the predicted signal over the same trials.
    """

    ablation: str
    comparisons: Comparisons
    mechanism: Comparisons | None
    verdicts: tuple[Verdict, ...]
    support: Support
    support_reason: str
    ranking: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The screening winner against the baseline on fresh seeds; told whether or not it passed."""

    ablation: str
    arm: Arm
    baseline: Arm
    seeds: tuple[int, ...]
    comparisons: Comparisons
    adopted: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Adoption:
    """The best arm of a round, adopted without a confirmation (`Policy.OPTIMISE`): unproven."""

    ablation: str
    arm: Arm


@dataclass(frozen=True, slots=True)
class Headline:
    """Final against original configuration on untouched seeds; the only look at the test split."""

    original: Arm
    final: Arm
    seeds: tuple[int, ...]
    validation: Comparisons
    test: Comparisons | None


@dataclass(frozen=True, slots=True)
class Round:
    """One turn of the loop. What has not happened yet is empty or None.

    `seeds` are those the baseline was diagnosed on; `looks` those done, by ablation.
    """

    number: int
    baseline: Arm
    seeds: tuple[int, ...]
    findings: tuple[Finding, ...] = ()
    hypotheses: tuple[Hypothesis, ...] = ()
    untestable: tuple[str, ...] = ()
    plan: Plan | None = None
    results: tuple[AblationResult, ...] = ()
    confirmation: Confirmation | None = None
    adoption: Adoption | None = None
    looks: Mapping[str, tuple[Look, ...]] = field(default_factory=dict)

    @property
    def adopted(self) -> Arm | None:
        """The arm that became the next round's baseline, proven or not."""
        if self.adoption is not None:
            return self.adoption.arm
        asked = self.confirmation
        return asked.arm if asked is not None and asked.adopted else None


@dataclass(frozen=True, slots=True)
class Record:
    """A campaign as it stands: what `status`, `report`, `explain` and the tracker show.

    Built from the ledger.

    `ending` says in one sentence why the loop stopped; empty while it has not.
    """

    campaign: Campaign
    rounds: tuple[Round, ...]
    trials: Mapping[str, Trial]
    outcomes: Mapping[str, Outcome]
    headline: Headline | None = None
    ending: str = ""

    def of(self, arm: Arm, seeds: tuple[int, ...]) -> tuple[tuple[Trial, Outcome], ...]:
        """Finished trials of `arm` on `seeds`, in the order of the seeds."""
        wanted = {t.seed: t for t in self.trials.values() if t.overrides == arm.overrides}
        found = [wanted[s] for s in seeds if s in wanted]
        return tuple((t, self.outcomes[t.identity]) for t in found if t.identity in self.outcomes)


@dataclass(frozen=True, slots=True)
class Page:
    """One page of the report, ready to be shown elsewhere.

    `name` is `Plan.page_of` an ablation, or empty for the campaign's. `summary` is Markdown that
    answers first; `rows` are cells under `columns` (both empty while there is no result); `html`
    stands alone; `figures` are PNG by file name.
    """

    name: str
    title: str
    summary: str
    html: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    figures: Mapping[str, bytes] = field(default_factory=dict)
