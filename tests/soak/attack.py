"""What an attack is: a class whose `attempt` makes one seeded try, and raises a `Fault`."""

import pathlib
import shutil


class Fault(Exception):
    """The package does what it must not do."""


class Unavailable(Exception):
    """This machine lacks what the attack, or a part of it, needs."""


class Attack:
    """Base of the attacks. A try depends on its random numbers alone, so that it can be repeated.

    Parameters
    ----------
    material : pathlib.Path
        Folder that `soak.material` wrote. It is shared, and never changed.
    folder : pathlib.Path
        Folder of this worker. What it holds at a fault is kept.
    """

    #: Name on the command line and in the table.
    name = ""
    #: What the table counts.
    unit = "tries"
    #: Share of the time.
    weight = 1.0
    #: Seconds after which a try hangs.
    limit = 120
    #: Bytes of memory that a try may take.
    memory = 3 << 30
    #: Threads of a worker's operations; None for the libraries' own number.
    threads = 1

    def __init__(self, material, folder):
        self.material, self.folder = material, folder
        #: What this machine lacks for a part of the attack, a line each.
        self.lacks = []
        self.prepare()

    def prepare(self):
        """Load what all tries need."""

    def attempt(self, random):
        """Make one try.

        Parameters
        ----------
        random : random.Random
            Random numbers of this try.

        Returns
        -------
        int
            How much it counts for, in the attack's unit.

        Raises
        ------
        Fault
            If the package does what it must not do. Any other exception is a fault too.
        Unavailable
            If this machine cannot make such tries.
        """
        raise NotImplementedError

    def fresh(self, name):
        """Path of an empty folder of this worker.

        Parameters
        ----------
        name : str
            Name of the folder. An older folder of this name is deleted.

        Returns
        -------
        pathlib.Path
            The folder.
        """
        path = pathlib.Path(self.folder) / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path
