"""The learning-curve model of Domhan et al. (IJCAI 2015) and HyperDrive, sampled by MCMC (Markov chain Monte Carlo).

- families: the eleven parametric curves: names, formulas, initial parameters
- numba_kernels: all compiled code: values of the families, log density, moves of the sampler
- posterior: the posterior of the model for one curve
- initial_walkers: the initial positions of the sampler's walkers, from a separate fit of each family
- samplers: the ensemble sampler, compiled here or from the package emcee
- posterior_predictive: predictions from samples of the posterior
- predictor: the plugin `mcmc`
"""
