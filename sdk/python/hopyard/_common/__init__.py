"""Internal helpers that all parts of Hopyard use. Users must not import them.

`formatting` formats values for people, `plugins` finds plugins, `command_template` inserts hyperparameters into
commands, `optional_import` imports optional libraries and names the extra to install.
"""
