"""Kills: at random moments, and at each system call that writes."""

import collections
import re
import signal
import time

from soak.attack import Attack, Fault
from soak.commands import EXISTS, Commands
from soak.processes import WRITING, Tracer, can_trace

#: Share of the kills at system calls.
TRACED = 0.6
#: Greatest number of kills before the command is let to its end.
MOST = 3


class Kills(Attack):
    """A command is killed by SIGKILL, at a random moment or when it enters a system call that
    writes; the same command then ends well, with the same files as without a kill.

    Before it, every file under its final name is whole. Some tries kill the second command as well.
    """

    name = "kills"
    unit = "kills"
    weight = 17
    limit = 600

    def prepare(self):
        self._commands = Commands(self.material, self.folder)
        self._calls = {}
        self._can_trace = can_trace()
        if not self._can_trace:
            self.lacks.append("strace is missing or may not attach: no kills at system calls")

    def attempt(self, random):
        commands = self._commands
        name = commands.choose(random)
        commands.expected(name)
        kills = []
        if not self._can_trace or random.random() > TRACED:
            kills.append(lambda: self._at_a_moment(name, random))
        else:
            kills.append(lambda: self._at_a_call(name, random))
        while len(kills) < MOST and random.random() < 0.25:
            kills.append(lambda: self._at_a_moment(name, random))
        commands.clear(name)
        count = 0
        for kill in kills:
            count += kill()
            commands.check_parts(name)
        commands.finish(name)
        return count

    def _at_a_moment(self, name, random):
        """Kill the command at a random moment; returns the number of kills."""
        _, seconds = self._commands.expected(name)
        was_whole = self._commands.is_whole(name)
        child = self._commands.start(name, "killed.txt")
        time.sleep(random.uniform(0, seconds))
        child.kill()
        return self._count(name, child, was_whole)

    def _at_a_call(self, name, random):
        """Kill the command as it enters a system call that writes to its output."""
        if name not in self._calls:
            self._calls[name] = self._list_calls(name)
            self._commands.clear(name)
        call, number = random.choice(self._calls[name])
        child = self._commands.start(name, "killed.txt", waits=True)
        inject = ["-e", f"inject={call}:signal=KILL:when={number}"]
        tracer = Tracer(child, self.folder / "trace.txt", inject)
        child.release()
        if child.wait() is None:
            child.kill()
            raise Fault(f"`{name}` hangs under strace, at {call} {number}")
        tracer.wait()
        return self._count(name, child, was_whole=False)

    def _count(self, name, child, was_whole):
        """Number of kills: 0 if the command ended before, well or as its output was whole."""
        code = child.wait()
        if code == -signal.SIGKILL:
            return 1
        line = self._commands.last_line("killed.txt")
        if code != 0 and not (code == 2 and was_whole and EXISTS.match(line)):
            raise Fault(f"`{name}` ends with {code}: {line}")
        return 0

    def _list_calls(self, name):
        """System calls of an undisturbed command that name its output: name and number.

        Calls of different threads are numbered apart, and strace counts them apart too.
        """
        self._commands.clear(name)
        trace = self.folder / "calls.txt"
        child = self._commands.start(name, "killed.txt", waits=True)
        tracer = Tracer(child, trace, [])
        child.release()
        if child.wait() is None:
            child.kill()
            raise Fault(f"`{name}` hangs under strace")
        tracer.wait()
        counts, calls = collections.Counter(), set()
        for line in trace.read_text(encoding="utf-8", errors="replace").splitlines():
            match = re.match(r"(\d+) +(\w+)\((.*)", line)
            if not match or match[2] not in WRITING.split(","):
                continue
            counts[match[1], match[2]] += 1
            read_only = match[2] == "openat" and "O_RDONLY" in match[3]
            if str(self._commands.out) in match[3] and not read_only:
                calls.add((match[2], counts[match[1], match[2]]))
        if not calls:
            raise Fault(f"`{name}` writes nothing")
        return sorted(calls)
