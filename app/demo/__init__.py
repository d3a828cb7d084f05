"""The demonstration: a real server and three sessions of adaptively chosen queries, compared with the true answers.

The demonstration knows the true answers, as it generates or reads the data. Generated data come from seeded NumPy
generators; nothing here protects anything. It uses the service through the client and audits transcripts, as anybody
can.
"""
