"""Training dynamics of linear attention (arXiv 2501.16265)."""

# In which order reports and lists show the modules of claims, and the figures. What is not named
# comes last.
# fmt: off
ORDER = {
    "claims": (
        "network", "merged", "separate", "order", "cascade", "heads", "algorithm", "rank", "scale",
        "softmax", "in_weight",
    ),
    "figures": (
        "merged", "landscape-merged", "white", "merged-drop-times", "staircase", "staircase-3b",
        "staircase-3c", "landscape-separate", "order", "order-by-growth", "scalar-ode", "cascade",
        "heads", "rank", "rank-others", "rank-mechanism", "pcr", "context", "softmax", "in-weight",
        "scale", "lazy", "rich-to-lazy",
    ),
}
# fmt: on
