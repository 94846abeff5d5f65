"""Kills at random moments."""

import signal
import time

from soak.attack import Attack, Fault
from soak.commands import EXISTS, Commands


class Kills(Attack):
    """A command is killed by SIGKILL at a random moment; the same command then ends well, with the
    same files as without a kill.

    Before it, every file under its final name is whole. Some tries kill the second command as well.
    """

    weight = 17
    limit = 600

    def prepare(self):
        self._commands = Commands(self.material, self.folder)

    def attempt(self, random):
        commands = self._commands
        name = commands.choose(random)
        _, seconds = commands.expected(name)
        commands.clear(name)
        kills = 1 + (random.random() < 0.25)
        for _ in range(kills):
            was_whole = commands.is_whole(name)
            child = commands.start(name)
            time.sleep(random.uniform(0, seconds))
            child.kill()
            code = child.wait()
            is_there = code == 2 and was_whole and EXISTS.match(commands.last_line())
            if code not in (0, -signal.SIGKILL) and not is_there:
                raise Fault(f"`{name}` ends with {code}: {commands.last_line()}")
            commands.check_parts(name)
        commands.finish(name)
        return kills
