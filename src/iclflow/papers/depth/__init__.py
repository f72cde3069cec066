"""Stacks and loops of linear attention (arXiv 2510.01098 and 2306.00297)."""

# In which order reports and lists show the modules of claims, and the figures. What is not named
# comes last.
ORDER = {
    "claims": ("loop", "optimum", "stacks", "limits", "flows", "scaling"),
    "figures": ("losses", "escape", "atlas", "scaling", "more-loops"),
}
