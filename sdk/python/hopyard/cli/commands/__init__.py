"""The built-in commands, one package for each topic. The function `register` of a command module adds its commands to the command line.

Command modules are imported at each start of `hopyard`. Therefore each command imports the modules that it needs only when it runs.
"""
