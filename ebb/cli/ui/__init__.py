"""A live page in the browser: what `ebb ui` serves. It reads with the user's own rights, and changes nothing.

    async with serving(ebb, port=0) as url: ...

live.py      the platform, read once for all who watch, and not at all while nobody does
feed.py      what the page of one job needs beside that: metric lines, events, the end of its log
pages.py     both as HTML, in the words of the CLI
guard.py     other sites and other users of the machine are kept out
server.py    HTTP: pages, JSON, one stream of events; with ui.css and ui.js beside the report's
"""
