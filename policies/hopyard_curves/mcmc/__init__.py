"""The learning-curve model of Domhan et al. (IJCAI 2015) and HyperDrive, sampled by MCMC.

- families: the eleven parametric curves: names, parameters, initial values
- numba_kernels: all compiled code: function values, log density, the walk
- posterior: the model's posterior for a curve
- initial_walkers: initial positions of walkers: each family fitted alone
- samplers: the ensemble sampler, ours or emcee's
- posterior_predictive: predictions from samples
- predictor: the plugin `mcmc`
"""
