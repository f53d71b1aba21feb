"""Does the wheel install as a user would install it? For each Python that it is for, in a fresh virtual environment:

    python -m benchmarks.install            # or: make prove-install

builds the wheel, installs it with pip alone, runs `ebb --help`, imports the Python API, lists the top-level names that came with
it, and runs a program in a folder that has modules named as folders of our repository. Where torch is at hand (the environment of
`python -m devcluster environment`, Python 3.11), that program is trained by `ebb local` too. Ends with one line of JSON.
"""
