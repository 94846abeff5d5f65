"""What an attack is: a class whose `attempt` makes one seeded try, and raises a `Fault`."""

import pathlib


class Fault(Exception):
    """The package does what it must not do."""


class Attack:
    """Base of the attacks. A try depends on its random numbers alone, so that it can be repeated.

    Parameters
    ----------
    material : pathlib.Path
        Folder that `soak.material` wrote. It is shared, and never changed.
    folder : pathlib.Path
        Folder of this worker. What it holds at a fault is kept.
    """

    #: Share of the time.
    weight = 1.0
    #: Seconds after which a try hangs.
    limit = 120
    #: Threads of a worker's operations; None for the libraries' own number.
    threads = 1

    def __init__(self, material, folder):
        self.material, self.folder = material, pathlib.Path(folder)
        self.prepare()

    def prepare(self):
        """Load what all tries need."""

    def attempt(self, random):
        """Make one try, by a `random.Random`; returns how much it counts for.

        A `Fault`, and any other exception, is a fault of the package.
        """
        raise NotImplementedError
