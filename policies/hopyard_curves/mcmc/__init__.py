"""The learning-curve model of Domhan et al. (IJCAI 2015) and HyperDrive, sampled by MCMC.

- families: the eleven parametric curves: names, parameters, start values
- compiled: all machine code: their values, the log-density, the walk
- posterior: what the model makes of a curve
- start: where the walkers begin: each family fitted alone
- samplers: the ensemble that walks, ours or emcee's
- reading: what the samples say
- predictor: the plugin `mcmc`
"""
