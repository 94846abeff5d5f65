"""Pairs: the same writing command twice at once."""

import time

from soak.attack import Attack, Fault
from soak.commands import EXISTS, LOCKED, Commands
from soak.processes import LIMIT


class Pairs(Attack):
    """Two processes run the same writing command at once: one ends well, and the second ends well
    too or is refused, by a line that names the first process or the folder that is there. The
    output is whole.
    """

    name = "pairs"
    unit = "pairs"
    weight = 8
    limit = 300

    def prepare(self):
        self._commands = Commands(self.material, self.folder)

    def attempt(self, random):
        commands = self._commands
        name = commands.choose(random)
        _, seconds = commands.expected(name)
        commands.clear(name)
        outputs = ("first.txt", "second.txt")
        children = [commands.start(name, outputs[0])]
        time.sleep(random.choice((0, random.uniform(0, 0.02), random.uniform(0, seconds))))
        children.append(commands.start(name, outputs[1]))
        codes = [child.wait() for child in children]
        for child in children:
            child.kill()
        if None in codes:
            raise Fault(f"`{name}` hangs for {LIMIT} seconds beside another one")
        for code, output in zip(codes, outputs):
            line = commands.last_line(output)
            if code not in (0, 2) or "Traceback" in commands.printed(output):
                raise Fault(f"`{name}` ends with {code} beside another one: {line}")
        if 0 not in codes:
            lines = " / ".join(commands.last_line(output) for output in outputs)
            raise Fault(f"both of `{name}` are refused: {lines}")
        if 2 in codes:
            loser = codes.index(2)
            self._check_refusal(commands.last_line(outputs[loser]), children[1 - loser].pid, name)
        commands.check_whole(name)
        return 1

    @staticmethod
    def _check_refusal(line, pid, name):
        locked = LOCKED.match(line)
        if not EXISTS.match(line) and not (locked and int(locked[1]) == pid):
            raise Fault(f"`{name}` is refused without the process {pid}: {line}")
