# SPDX-License-Identifier: Apache-2.0
"""A memory control group of version 1 or 2 with swap off, below the group of this process."""
import os


class ControlGroup:
    """create() returns None where the machine offers no group."""

    def __init__(self, path, version):
        self.path, self.version = path, version

    @classmethod
    def create(cls, limit):
        for version, parent in places():
            path = os.path.join(parent, "antigravity-hostile-%d" % os.getpid())
            try:
                os.mkdir(path)
            except OSError:
                continue
            group = cls(path, version)
            if group.set_limit(limit):
                return group
            group.remove()
        return None

    def set_limit(self, limit):
        """Sets the limit of memory, swap included. Version 1 keeps the first number below the second at all times."""
        if self.version == 2:
            return self.try_write("memory.max", limit) and (self.try_write("memory.swap.max", 0) or has_no_swap())
        both = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
        for _ in range(2):
            done = [self.try_write(name, limit) for name in both]
        return done[0] and (done[1] or has_no_swap())

    def try_write(self, name, value):
        try:
            self.write(name, value)
        except OSError:
            return False
        return True

    def write(self, name, value):
        with open(os.path.join(self.path, name), "w") as f:
            f.write("%d" % value)

    def command(self, command):
        """The command, run by a shell that first enters the group."""
        return ["/bin/sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', self.path] + command

    def kills(self):
        """How often the kernel has killed a process of the group."""
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        with open(os.path.join(self.path, name)) as f:
            for line in f:
                words = line.split()
                if words and words[0] == "oom_kill":
                    return int(words[1])
        return 0

    def remove(self):
        try:
            os.rmdir(self.path)
        except OSError:
            pass  # A process is still ending; the empty group does no harm.


def places():
    """(version, directory) where a group may be made: below our own, else at the top of the hierarchy."""
    own = {}
    try:
        with open("/proc/self/cgroup") as f:
            for line in f:
                _, controllers, path = line.rstrip("\n").split(":", 2)
                own[controllers] = path
    except OSError:
        return
    v1 = "/sys/fs/cgroup/memory"
    v2 = "/sys/fs/cgroup"
    for controllers, path in own.items():
        if "memory" in controllers.split(","):
            yield 1, v1 + path
            yield 1, v1
    if os.path.exists(v2 + "/cgroup.controllers"):
        yield 2, v2 + own.get("", "/")
        yield 2, v2


def has_no_swap():
    try:
        with open("/proc/swaps") as f:
            return len(f.readlines()) <= 1
    except OSError:
        return False
