"""The dashboard: web pages about one cluster, which a control plane serves. They read through the
same client as the command line.

A page is a function from the reader and the query of its address to a `Content`; a template turns
that into HTML. `live` sends the changed part of a page to the browser while it is open.
"""
