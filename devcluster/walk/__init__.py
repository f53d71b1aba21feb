"""`make walk`: what a new user sees, recorded in a real terminal on the local stack, and written down as docs/walk.md.

terminal.py  a terminal of 80 columns in tmux that is typed into and read     play.py     the walk itself
scenes.py    what is shown of it, as a page of Markdown (pure)                browser.py  the report in a browser, if there is one

It types what a user types and waits for what a user waits for: words on the screen. Nothing of a recording is edited but paths of
this machine; one that fails writes nothing.
"""
