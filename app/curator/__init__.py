"""The curator's protocol: plans, rounds of online query response, and the state of a session. Pure."""
