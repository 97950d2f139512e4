"""A witness on the host to which each worker says which cell it has, and that it is done with it.

It knows nothing of the journal. A connection ends with its worker's process, or with its machine. Two workers have one
cell when the second says so while the first, whose connection stands, ends that cell later or goes on for PATIENCE.
"""

from __future__ import annotations

import socket
import threading
import time

PATIENCE = 20.0
"""So long after a worker's death its connection may stand: what emulates the network passes the end on late."""
CLOSES_SECONDS = 5.0


class Witness:
    """Listens from its creation on, until `close()`. `twice`: what was seen; `claims`: how many there were; `journals`:
    as the machines read them when all was done."""

    def __init__(self) -> None:
        self.twice: list[str] = []
        self.claims = 0
        self.journals: list[bytes] = []
        self._has: dict[int, tuple[str, int]] = {}
        self._contested: set[int] = set()
        self._ended: set[tuple[int, int]] = set()
        self._changed = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        count = 0
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            count += 1
            threading.Thread(target=self._listen, args=(connection, count), daemon=True).start()

    def _listen(self, connection: socket.socket, count: int) -> None:
        mine: set[int] = set()
        try:
            with connection, connection.makefile("rwb") as said:
                for line in said:
                    name, verb, cell = line.decode("ascii").split()
                    if verb == "read":
                        self.journals.append(said.read(int(cell)))
                    elif verb == "has":
                        self._take(int(cell), name, count, connection)
                        mine.add(int(cell))
                        said.write(b"seen\n")
                        said.flush()
                    else:
                        self._end(int(cell), count)
                        mine.discard(int(cell))
        except OSError:
            pass
        finally:
            with self._changed:
                for cell in mine:
                    if self._has.get(cell, ("", 0))[1] == count:
                        del self._has[cell]
                self._changed.notify_all()

    def _take(self, cell: int, name: str, count: int, connection: socket.socket) -> None:
        """Blocks while another has the cell, until that one's connection ends or it is proved that both have it."""
        ends = time.monotonic() + PATIENCE
        with self._changed:
            self.claims += 1
            other, number = self._has.get(cell, ("", 0))
            while self._has.get(cell, ("", 0))[1] == number != 0:
                self._contested.add(cell)
                if not self._changed.wait(max(0.0, ends - time.monotonic())):
                    self._ended.add((cell, number))
                    break
            both = (cell, number) in self._ended
            self._has[cell] = name, count
        if both and not _is_closed(connection):  # else this one had died, and what it said came late
            self.twice.append(f"cell {cell}: {other} and {name}")

    def _end(self, cell: int, count: int) -> None:
        with self._changed:
            if self._has.get(cell, ("", 0))[1] == count:
                del self._has[cell]
                if cell in self._contested:
                    self._ended.add((cell, count))
            self._changed.notify_all()


def _is_closed(connection: socket.socket) -> bool:
    """Whether the other side has closed it, or does so within a few seconds. It sends nothing before it is answered."""
    connection.settimeout(CLOSES_SECONDS)
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except TimeoutError:
        return False
    except OSError:
        return True
    finally:
        connection.settimeout(None)
