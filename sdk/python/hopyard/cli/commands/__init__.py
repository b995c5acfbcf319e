"""The built-in commands, one package for each topic. The `register` of a command module adds its commands to the application.

Command modules are imported at each start, so each command imports the modules that it needs when it runs.
"""
