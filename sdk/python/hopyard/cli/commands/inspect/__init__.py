"""Commands that query experiments: experiments, jobs, best, curve, nodes, plot, results, trace, logs, download."""
