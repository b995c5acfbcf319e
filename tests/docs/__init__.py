"""Every command of the documentation is run.

The pages are README.md, docs/*.md and the README of each example. Each is worked through in order in a folder of its own, which
holds copies of the examples. Experiment files, those of the examples and those on the pages, are cut down to two jobs of two
iterations. What a block means follows from its language and from what
stands before it:

- ```bash is run as a script that must succeed. ```console holds lines that begin with `$`, which are run likewise, and samples of
  what they print.
- ```python and ```yaml whose paragraph begins with a file's name and a colon are written into that file; a test_*.py is then
  run by pytest. Other Python must compile. YAML that is an experiment must load as one.
- Other languages are text for the reader, and must not hold commands.

A comment right before a block says more about it:

    <!-- docs: not run: WHY -->                   cannot run here; the options of its hopyard commands are still looked at
    <!-- docs: Ctrl-C after "TEXT" -->            interrupted when it has said TEXT; it must then end with 130, or 0
    <!-- docs: background until "TEXT" -->        left running once it has said TEXT; interrupted when the page is over
    <!-- docs: exit 1 -->                         ends with this code
    <!-- docs: shows "TEXT" -->                   what it prints has TEXT in it
    <!-- docs: compared -->                       the samples of output are what is printed; `...` stands for anything
    <!-- docs: run -->                            Python: run it
    <!-- docs: whole -->                          a written experiment file: with all its jobs and iterations
    <!-- docs: same as FILE -->                   the text of this file of the repository

and two stand for themselves:

    <!-- docs: in tests "A" is "B" -->            from here on; {port} in B is a free port, the same in all of the page
    <!-- docs: before                             a script that makes what the page takes for granted
    ...
    -->
"""
