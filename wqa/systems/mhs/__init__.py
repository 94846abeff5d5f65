"""The Multiple-Heads Student (Matsubara et al. 2022)."""

from wqa.config.systems import System

#: Records of the systems of this package.
SYSTEMS = (
    System(
        name="mhs",
        help="the Multiple-Heads Student",
        network="wqa.systems.mhs.network.MultipleHeadsStudent",
        task="wqa.systems.mhs.task.MHSTask",
        checkpoint="wqa.systems.mhs.network.StudentLayout",
    ),
)
