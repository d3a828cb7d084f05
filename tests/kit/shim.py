"""A command of a shell that `launcher.py` runs, by forking: this file stands in for it, with little to import.

It is run as ``shim.py SOCKET PROGRAM [ARGUMENTS]``. What it is given goes to the launcher, descriptors included, and
the exit code comes back. SIGTERM goes to the command; where the command dies of a signal the code is 137.
"""

import marshal
import os
import signal
import socket
import sys

# A command may run before its number has come back: a SIGTERM of that time waits, and goes on to it afterwards.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
launcher = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
launcher.connect(sys.argv[1])
order = {
    "program": sys.argv[2],
    "arguments": sys.argv[3:],
    "environment": dict(os.environ),
    "folder": os.getcwd(),
}
socket.send_fds(launcher, [marshal.dumps(order)], [0, 1, 2])
command = int(launcher.recv(32))
signal.signal(signal.SIGTERM, lambda *_: os.kill(command, signal.SIGTERM))
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
os._exit(int(launcher.recv(32) or 137))
