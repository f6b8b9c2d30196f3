"""Several hosts on one Linux machine, with the real sshd, for tests of everything that uses ssh.

Each host consists of network, PID, UTS, IPC and mount namespaces, with an address on a bridge in a namespace of its own, so that the
machine's network is not changed. `login` is the host to start from. Needs root, iproute2, util-linux and openssh-server. All processes of
a host die with its process 1.
"""

from __future__ import annotations

import contextlib
import getpass
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

NUMBERS = itertools.count()
NEEDED = ("ip", "unshare", "nsenter", "ssh", "ssh-keygen", "/usr/sbin/sshd")
SSHD = """\
HostKey /etc/ssh/host_key
AuthorizedKeysFile /etc/ssh/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
StrictModes no
MaxStartups 200
PidFile none
AcceptEnv *
"""
SSH = """\
IdentityFile /etc/ssh/user_key
IdentitiesOnly yes
UserKnownHostsFile /etc/ssh/known_hosts
GlobalKnownHostsFile /dev/null
StrictHostKeyChecking yes
KexAlgorithms curve25519-sha256
"""
"""The default key exchange, which is post-quantum too, takes a fifth of a second on both processors, hundreds of times."""


def missing() -> str:
    """Return why no farm can be created here; empty if it can."""
    if os.geteuid() != 0:
        return "pretend hosts need root, for network namespaces"
    absent = [program for program in NEEDED if not shutil.which(program)]
    if absent:
        return f"pretend hosts need {', '.join(absent)}"
    probe = subprocess.run(["unshare", "--net", "--pid", "--mount", "--fork", "true"], capture_output=True, check=False)
    return "" if probe.returncode == 0 else "this container may not make namespaces"


def run_checked(*words: str, **options: Any) -> str:
    """Run a command that must succeed, and return its output."""
    return subprocess.run(words, check=True, text=True, capture_output=True, **options).stdout


def command_of(pid: int) -> bytes:
    """Return a process' command line, each word ended by a NUL; nothing if it has just ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


class Farm:
    """`count` hosts named h1, h2, … and login. Use it as a context manager."""

    def __init__(self, count: int, *, shared_tmp: bool = False) -> None:
        """Prepare the hosts. `shared_tmp`: all hosts have the same /tmp, as containers and diskless nodes may."""
        self.name = f"dstui{os.getpid()}-{next(NUMBERS)}"
        self.hosts = [f"h{number}" for number in range(1, count + 1)]
        self.addresses = {host: f"10.79.0.{number}" for number, host in enumerate(self.hosts, 1)} | {"login": "10.79.0.250"}
        self.state = Path("/run") / self.name
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.shared_tmp = self.state / "tmp" if shared_tmp else None

    def __enter__(self) -> Farm:
        self.state.mkdir()
        if self.shared_tmp:
            self.shared_tmp.mkdir()
            self.shared_tmp.chmod(0o1777)
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        try:
            self._files()
            self._network()
            for host in self.addresses:
                self._start(host)
            for host in self.addresses:
                self._wait(host)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for host in [*self.addresses, "switch"]:
            subprocess.run(["ip", "netns", "del", self.namespace(host)], capture_output=True, check=False)
            shutil.rmtree(self.etc(host), ignore_errors=True)
        shutil.rmtree(self.state, ignore_errors=True)

    def namespace(self, host: str) -> str:
        """Return the name of a host's network namespace."""
        return f"{self.name}-{host}"

    def etc(self, host: str) -> Path:
        """Return the folder with the host's own files of /etc."""
        return Path("/etc/netns") / self.namespace(host)

    def _files(self) -> None:
        run_checked("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.state / "user_key"))
        names = "127.0.0.1 localhost\n" + "".join(f"{address} {host}\n" for host, address in self.addresses.items())
        known = ""
        for host, address in self.addresses.items():
            folder = self.etc(host) / "ssh"
            folder.mkdir(parents=True)
            run_checked("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "host_key"))
            known += f"{host},{address} {(folder / 'host_key.pub').read_text()}"
            (folder / "authorized_keys").write_text((self.state / "user_key.pub").read_text())
            (folder / "sshd_config").write_text(SSHD)
            (folder / "ssh_config").write_text(SSH)
            shutil.copy(self.state / "user_key", folder / "user_key")
            (self.etc(host) / "hosts").write_text(names)
            (self.etc(host) / "resolv.conf").write_text("")  # an unknown name fails at once
        for host in self.addresses:
            (self.etc(host) / "ssh/known_hosts").write_text(known)

    def _network(self) -> None:
        switch = self.namespace("switch")
        run_checked("ip", "netns", "add", switch)
        run_checked("ip", "-n", switch, "link", "add", "br0", "up", "type", "bridge")
        for host, address in self.addresses.items():
            own = self.namespace(host)
            run_checked("ip", "netns", "add", own)
            run_checked("ip", "-n", switch, "link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", own)
            run_checked("ip", "-n", switch, "link", "set", host, "master", "br0", "up")
            run_checked("ip", "-n", own, "-batch", "-", input=f"link set lo up\naddr add {address}/24 dev eth0\nlink set eth0 up\n")

    def _start(self, host: str) -> None:
        namespaces = ["--uts", "--ipc", "--pid", "--mount", "--mount-proc", "--fork", "--kill-child"]
        command = [
            "ip",
            "netns",
            "exec",
            self.namespace(host),
            "unshare",
            *namespaces,
            sys.executable,
            __file__,
            host,
            str(self.shared_tmp or ""),
        ]
        with (self.state / f"{host}.log").open("wb") as log:
            self.processes[host] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def _wait(self, host: str, seconds: float = 10.0) -> None:
        log, deadline = self.state / f"{host}.log", time.monotonic() + seconds
        while "listening on" not in log.read_text():
            if time.monotonic() > deadline or self.processes[host].poll() is not None:
                raise RuntimeError(f"{host} did not start: {log.read_text()}")
            time.sleep(0.01)

    def pids(self, host: str) -> list[int]:
        """Return all processes of a host, by the machine's pids."""
        return [int(pid) for pid in run_checked("ip", "netns", "pids", self.namespace(host)).split()]

    def pid(self, host: str) -> int:
        """Return process 1 of a host, by the machine's pid."""
        for pid in self.pids(host):
            words = command_of(pid).split(b"\0")
            if words[1:3] == [__file__.encode(), host.encode()]:
                return pid
        raise LookupError(host)

    def command(self, host: str, words: Sequence[str]) -> list[str]:
        """Return a command line that runs words on a host."""
        return ["nsenter", "-t", str(self.pid(host)), "-n", "-u", "-i", "-p", "-m", f"-w{Path.cwd()}", "--", *words]

    def run(self, host: str, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command on a host."""
        return subprocess.run(self.command(host, words), text=True, capture_output=True, check=False, **options)

    def power_off(self, host: str) -> None:
        """Kill a host without any last message."""
        self.cable(host, plugged=False)
        os.killpg(self.processes[host].pid, signal.SIGKILL)
        self.processes[host].wait()

    def cable(self, host: str, *, plugged: bool) -> None:
        """Unplug a host's cable, or plug it in again."""
        run_checked("ip", "-n", self.namespace("switch"), "link", "set", host, "up" if plugged else "down")


@contextlib.contextmanager
def etc(farm: Farm, host: str, name: str, text: str) -> Iterator[None]:
    """Replace the content of a file in /etc/ssh of a host for a while. It is written in place, since the file is mounted."""
    file = farm.etc(host) / "ssh" / name
    before = file.read_text()
    file.write_text(text)
    try:
        yield
    finally:
        file.write_text(before)


def forced(farm: Farm, command: str) -> str:
    """Return an authorized_keys with which every login runs only this command."""
    return f'command="{command}" ' + (farm.state / "user_key.pub").read_text()


def mount_temporary_folder(shared_by_all: str) -> None:
    """Give each host its own /tmp (or this shared folder), except for pytest's folders, the project and its Python, which all hosts share."""
    (Path("/tmp") / f"pytest-of-{getpass.getuser()}").mkdir(exist_ok=True)
    places = (Path("/tmp") / f"pytest-of-{getpass.getuser()}", Path(__file__).resolve().parents[2], Path(sys.prefix).resolve())
    shared = {place: os.open(place, os.O_PATH | os.O_DIRECTORY) for place in places if place.is_relative_to("/tmp")}
    if shared_by_all:
        run_checked("mount", "--bind", shared_by_all, "/tmp")
    else:
        run_checked("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/tmp")
    for place, before in shared.items():
        place.mkdir(parents=True, exist_ok=True)
        run_checked("mount", "--no-canonicalize", "--bind", f"/proc/{os.getpid()}/fd/{before}", str(place))
        os.close(before)


def hide_shell_start_files() -> None:
    """Hide the user's shell start files from the hosts; they may take longer than the commands."""
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)  # sshd uses this home, whatever $HOME says
    for file in (home / name for name in (".bashrc", ".bash_profile", ".bash_login", ".profile")):
        if file.exists():
            run_checked("mount", "--bind", "/dev/null", str(file))


def mount_session_operations() -> None:
    """Mount the operations that the test session compiled over those of this machine's user; see tests/session_home.py."""
    kept, seen = (home / ".cache/torch_extensions" for home in (Path.home(), Path(pwd.getpwuid(os.getuid()).pw_dir)))
    if kept.is_dir() and kept != seen:
        seen.mkdir(parents=True, exist_ok=True)
        run_checked("mount", "--bind", str(kept.resolve()), str(seen))


def run_host(name: str, shared_tmp: str) -> None:
    """Run as process 1 of a host: set its name, mount its /dev/shm and compiled operations, start sshd, and reap children."""
    socket.sethostname(name)
    run_checked("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/dev/shm")
    hide_shell_start_files()
    mount_session_operations()
    if name != "login":
        mount_temporary_folder(shared_tmp)
    subprocess.Popen(["/usr/sbin/sshd", "-D", "-e"], cwd="/")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps for us
    while True:
        signal.pause()


if __name__ == "__main__":
    run_host(sys.argv[1], sys.argv[2])
