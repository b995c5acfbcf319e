"""Commands that create, run and change experiments: init, plan, run, resume, pause, stop, extend, wait, set, export, import."""
