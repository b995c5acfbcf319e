"""The search plan: the training of earlier experiments, in AppStat, which new experiments can reuse instead of repeating it."""
