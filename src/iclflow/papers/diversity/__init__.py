"""Few tasks and finite pretraining data (arXiv 2405.11751, and others on the same question)."""

# In which order reports and lists show the modules of claims, and the figures. What is not named
# comes last.
ORDER = {
    "claims": (
        *("tasks", "data", "limit", "weights", "alignment", "covariance", "bayes"),
        "transformer",
    ),
    "figures": (
        *("learning-curves", "context-length", "longer-contexts", "task-gap"),
        *("transience", "merged-separate", "alignment", "recall", "transformer"),
    ),
}
