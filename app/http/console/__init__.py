"""The console: pages for browsers, of which each calls the use cases and the lanes as routes do, under the same limits.

It has no power of its own: whatever a page does is a route, too, with the same roles.
"""
