"""The demonstration: a real server, two sessions of adaptively chosen queries over HTTP, judged against the
truth that the demonstration itself made up or read.

Made-up data comes from seeded NumPy generators; nothing here protects anything. The demonstration uses the
service as anybody would, through the client, and audits transcripts as anybody could.
"""
