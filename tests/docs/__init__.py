"""Tests of the documentation: every command on its pages is run.

The pages are README.md, CONTRIBUTING.md, docs/*.md, examples/README.md and the README of each example. Each page is run in order in
its own folder, which contains copies of the examples. Experiment files of the examples and of the pages are reduced to two jobs of
two iterations. The language of a block, and the text before it, determine what is done with it:

- ```bash is run as a script that must succeed. In ```console, lines that begin with `$` are run likewise, and the other lines are
  samples of their output.
- ```python and ```yaml whose paragraph begins with a file's name and a colon are written into that file; a test_*.py is then
  run by pytest. Other Python must compile. YAML that is an experiment must load as one.
- Other languages are text for the reader, and must not contain commands.

A comment directly before a block changes what is done with it:

    <!-- docs: not run: WHY -->                   cannot run here; the options of its hopyard commands are still checked
    <!-- docs: Ctrl-C after "TEXT" -->            is interrupted after it has printed TEXT; it must then end with 130, or 0
    <!-- docs: background until "TEXT" -->        continues to run after it has printed TEXT; is interrupted at the end of the page
    <!-- docs: exit 1 -->                         must end with this code
    <!-- docs: shows "TEXT" -->                   its output must contain TEXT
    <!-- docs: compared -->                       the samples of output must equal the output; `...` matches any text
    <!-- docs: run -->                            Python: run it
    <!-- docs: whole -->                          a written experiment file: with all its jobs and iterations
    <!-- docs: same as FILE -->                   must be the text of this file of the repository

Two comments need no block:

    <!-- docs: in tests "A" is "B" -->            replaces A from here on; {port} in B is a free port, the same on the whole page
    <!-- docs: before                             a script that creates what the page assumes
    ...
    -->
"""
