"""What an auditor keeps, opened and read: transcripts in files, and the log in a folder. What is in them is judged by
:mod:`app.audit`, which opens nothing.
"""
