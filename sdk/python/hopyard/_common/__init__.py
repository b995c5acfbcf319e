"""Internal: what all parts of Hopyard share. Users import none of it.

`formatting` writes values for people, `plugins` finds plugins, `command_template` puts hyperparameters into commands,
`optional_import` names the extra that brings a missing library.
"""
