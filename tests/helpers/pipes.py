"""Pipes with a name, and who reads them."""

import os
import threading
from contextlib import contextmanager, suppress


@contextmanager
def reading(path):
    """Make a FIFO and read it until its writers have gone; yields a list for the bytes."""
    os.mkfifo(path)
    found = []

    def read():
        with open(path, "rb") as file:
            found.append(file.read())

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        if thread.is_alive() and not found:
            # Nobody has written: let the reader go.
            with suppress(OSError):
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        thread.join(10)
