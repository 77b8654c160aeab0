"""Named pipes and their readers."""

import os
import threading
from contextlib import contextmanager, suppress


@contextmanager
def reading(path):
    """Create a FIFO and read it until all writers have closed it; yield a list of the bytes."""
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
            # If nothing was written, unblock the reader.
            with suppress(OSError):
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        thread.join(10)
