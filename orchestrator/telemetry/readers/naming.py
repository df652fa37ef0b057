"""From the names people give to columns to ours: which split, and which quantity.

A name is taken apart into a split (`SPLITS`) and a rest, which is looked up in `QUANTITIES`. If
several columns claim one role, their place in that table decides, then their number of points.
"""

from __future__ import annotations

import re

from orchestrator.nouns import Direction

SPLITS = {
    "train": ("train", "training", "trn", "tr"),
    "val": ("val", "valid", "validation", "eval", "evaluation", "dev", "holdout"),
    "test": ("test", "testing", "predict"),
}

QUANTITIES = {
    "loss": (
        ("loss", "loss_epoch", "loss_step", "epoch_loss"),
        ("avg_loss", "average_loss", "mean_loss", "loss_avg", "loss_mean", "running_loss"),
        ("total_loss", "loss_total", "overall_loss", "loss_sum", "batch_loss"),
        ("lm_loss", "cost", "objective"),
        ("smoothed_loss", "smooth_loss", "loss_smooth", "loss_smoothed", "loss_ema", "ema_loss"),
        ("",),  # the bare name of a split
    ),
    "accuracy": (
        ("accuracy", "acc", "accuracy_epoch", "acc_epoch", "accuracy_step", "acc_step"),
        ("avg_acc", "average_accuracy", "mean_accuracy", "epoch_accuracy", "epoch_acc"),
        ("accuracy_top1", "top1_accuracy", "top1_acc", "acc_top1", "top1", "acc1", "acc@1"),
        ("prec@1", "categorical_accuracy", "sparse_categorical_accuracy", "binary_accuracy"),
        ("mean_token_accuracy", "token_accuracy", "token_acc", "masked_accuracy"),
    ),
    "grad_norm": (
        ("grad_norm", "gradient_norm", "gradnorm", "gnorm", "global_grad_norm"),
        ("total_grad_norm", "grad_norm_total", "grad_2_0_norm_total", "grad_global_norm"),
        ("norm", "total_norm"),
    ),
    "loss_scale": (("loss_scale", "grad_scale", "amp_scale", "lossscale"), ("scale",)),
}
"""Rest of a column's name (lower case, "_" for separators) -> quantity, surest spelling first."""

EXACT = {"trl": "train/loss", "tel": "val/loss"}
"""Abbreviations of llm.c's logs."""

STEP_NAMES = (
    ("global_step", "globalstep", "num_updates", "n_updates", "current_steps"),
    ("step", "steps", "iteration", "iterations", "iter", "iters", "it", "itr", "n_iter"),
    ("batch", "batch_idx", "minibatch"),
)
EPOCH_NAMES = (("epoch", "ep", "current_epoch", "epoch_num", "epoch_idx"), ("epochs",))
INDEX_NAMES = ("", "index", "unnamed_0", "row", "idx")
PLANNED_NAMES = {
    "total_steps": "max_steps",
    "max_steps": "max_steps",
    "max_iter": "max_steps",
    "total_epochs": "max_epochs",
    "num_epochs": "max_epochs",
    "max_epochs": "max_epochs",
}

_SPELLINGS = {
    spelling: (name, rank)
    for name, ranks in QUANTITIES.items()
    for rank, spellings in enumerate(ranks)
    for spelling in spellings
}
_WORDS = {word: split for split, words in SPLITS.items() for word in words}
_ANY = "|".join(sorted(_WORDS, key=len, reverse=True))
_SEPARATOR = r"[\s_./:|\-]+"
_PREFIX = re.compile(rf"({_ANY})(?:{_SEPARATOR}(.*))?", re.I | re.S)
_CAMEL = re.compile(
    r"([Tt]rain(?:ing)?|[Vv]al(?:id(?:ation)?)?|[Ee]val|[Tt]est)(?=[A-Z])(.+)", re.S
)
_SUFFIX = re.compile(rf"(.+?)(?:{_SEPARATOR}|\s*\()({_ANY.replace('|dev', '')})\)?", re.I | re.S)
_MIDDLE = re.compile(rf"(.+?){_SEPARATOR}({_ANY}){_SEPARATOR}(.+)", re.I | re.S)

_LR = re.compile(
    r"(?:x_|epoch_|optim(?:izer)?_)?(?:lr|learning_?rate)"
    r"(?:_(?:sgd|lion|lamb|rmsprop|r?adam|adam\w?|adamax|nadam|adagrad|adafactor|\w+optimizer))?"
    r"(?:_?(?:pg|group|param_group)?_?(\d+))?"
)

SUBSTITUTES = ("nll", "ce", "xent", "bce", "mse", "rmse", "mae", "l1", "l2", "ppl", "perplexity")
"""What may be minimised where no column is called a loss; likelier ones first."""

_LOSSY = "|".join(("loss", *SUBSTITUTES, "mape", "err", "error", "kl", "cost", "elbo"))
_WORSE = re.compile(rf"(?:{_LOSSY}|wer|cer|ter|fid\w*|bp[bc]|eer|epe|hausdorff)\d*")
_BETTER = re.compile(
    r"(?:acc\w*|accuracy|top\d*|f1\w*|precision|prec|recall|auc|auroc|auprc|ap[sml]?|\w*map|m?iou|"
    r"dice|bleu|s?acrebleu|rouge\w*|meteor|chrf|r2|psnr|ssim|mcc|matthews|kappa|score|reward|"
    r"jaccard|ndcg|mrr|hits?|pearson|spearman\w*|bertscore|em|exact|correct|sensitivity|"
    r"specificity|success|pck)\d*"
)


def split_of(word: str) -> str:
    """The split that `word` alone names, or ""."""
    return _WORDS.get(word.lower(), "")


def take_apart(name: str) -> tuple[str, str]:
    """Split ("" if the name tells none) and the rest of `name`, as it is written there.

    The innermost split counts: `train/val_loss` is a validation loss.
    """
    name = name.strip()
    if match := _CAMEL.fullmatch(name):
        split, rest = _WORDS[match[1].lower()], match[2]
    elif match := _PREFIX.fullmatch(name):
        split, rest = _WORDS[match[1].lower()], match[2] or ""
    elif match := _SUFFIX.fullmatch(name):
        return _WORDS[match[2].lower()], match[1]
    elif match := _MIDDLE.fullmatch(name):
        return _WORDS[match[2].lower()], f"{match[1]}_{match[3]}"
    else:
        return "", name
    inner, inner_rest = take_apart(rest) if rest else ("", "")
    return (inner, inner_rest) if inner and inner_rest else (split, rest)


def normal(name: str) -> str:
    """A name as tables here spell it: lower case, "_" for every separator."""
    return re.sub(r"_+", "_", re.sub(r"[\s./:|\-()\[\]]+", "_", name.strip().lower())).strip("_")


def quantity(rest: str) -> tuple[str, int] | None:
    """Quantity that the rest of a name stands for, with the rank of this spelling."""
    return _SPELLINGS.get(normal(rest))


def lr_group(rest: str) -> int | None:
    """Number of the parameter group whose learning rate it is; None if it is none."""
    match = _LR.fullmatch(normal(rest))
    return int(match[1] or 0) if match and len(match[1] or "") < 6 else None


def rank_in(name: str, ranks: tuple[tuple[str, ...], ...]) -> int | None:
    """Rank of an axis column's name in one of the tables above, its split aside."""
    keys = {normal(name), normal(take_apart(name)[1])}
    keys |= {key.removeprefix("trainer_").lstrip("_") for key in keys}
    return next((i for i, spellings in enumerate(ranks) if keys & set(spellings)), None)


def tokens(name: str) -> list[str]:
    """Words of a name in lower case. `mAP50-95(B)` is map50, 95, b; `ValReconstructRate` is one."""
    return [t for t in re.split(r"[^0-9a-z@]+", name.lower()) if t]


def is_loss(name: str) -> bool:
    """Whether a word of the name says that it is a loss (a squared error, a perplexity, ...)."""
    return any(re.fullmatch(rf"\w*loss|(?:{_LOSSY})\d*", token) for token in tokens(name))


def direction_of(name: str) -> Direction | None:
    """Which way a series is good, as far as its name tells; None where it does not."""
    words = tokens(name)
    if any(_WORSE.fullmatch(t) or t.endswith("loss") for t in words):
        return Direction.MIN
    joined = "_".join(words)
    if any(_BETTER.fullmatch(t) for t in words) or "io_u" in joined or "miou" in joined:
        return Direction.MAX
    return None
