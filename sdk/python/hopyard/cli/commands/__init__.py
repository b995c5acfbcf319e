"""The built-in commands, one package for each topic. The `register` of a command module adds its commands to the application.

Command modules load at each start, so they import the modules that do the work when a command runs.
"""
