"""The guests as processes of this machine: QEMU's command lines, their consoles, their end.

Guests are emulated in software (TCG): this works where /dev/kvm is missing or broken, and the tests are about what
happens, not about how fast. A guest never outlives the launcher.
"""

import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading

from image import NotThere

QEMU = "qemu-system-x86_64"


def free_port() -> int:
    """A TCP port of loopback that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def networks(count: int) -> list[list[str]]:
    """QEMU's arguments for the network cards of each guest. Two guests are joined by one cable per card."""
    if count == 1:
        return [card(0, "user,restrict=on", 1)]
    arguments: list[list[str]] = [[], []]
    for index in range(2):
        port = free_port()
        arguments[0] += card(index, f"socket,listen=127.0.0.1:{port}", 1)
        arguments[1] += card(index, f"socket,connect=127.0.0.1:{port}", 2)
    return arguments


def card(index: int, backend: str, node: int) -> list[str]:
    # host_mtu: a card offers no MTU above 1500 without it.
    return ["-netdev", f"{backend},id=n{index}",
            "-device", f"virtio-net-pci,netdev=n{index},mac=52:54:00:00:0{index}:0{node},host_mtu=9000,romfile="]


class Guest:
    """One guest: its process, and the thread that shows its console."""

    def __init__(self, node: int, command: list[str], log: pathlib.Path) -> None:
        self.node = node
        # setpriv: the kernel kills the guest when the launcher has died, however it died.
        self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "nice", "-n", "10", *command],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.console = threading.Thread(target=self.show, args=(log,), daemon=True)
        self.console.start()

    def show(self, log: pathlib.Path) -> None:
        """Copies the console to stdout, each line with the guest's number, and to a file."""
        assert self.process.stdout is not None
        with log.open("wb", buffering=0) as file:
            for line in self.process.stdout:
                text = line.rstrip(b"\r\n")
                file.write(text + b"\n")
                sys.stdout.write(f"[{self.node}] {text.decode('utf-8', 'replace')}\n")
                sys.stdout.flush()

    def freeze(self) -> None:
        """Stops the whole machine, its network card included; what it has sent already still arrives."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def running(self) -> bool:
        return self.process.poll() is None

    def end(self) -> None:
        """Kills it if it still runs, and takes in the rest of its console."""
        if self.running():
            self.process.kill()
        self.process.wait()
        self.console.join(timeout=10)


def qemu_path() -> str:
    """Raises NotThere."""
    program = shutil.which(QEMU)
    if program is None:
        raise NotThere(f"no {QEMU}: install qemu-system-x86")
    return program


def qemu_arguments(node: int, count: int, *, kernel: pathlib.Path, image: pathlib.Path, root: pathlib.Path,
                   out: pathlib.Path, memory: int, cpus: int) -> list[str]:
    """QEMU's command line for a guest, without its network."""
    words = ["console=ttyS0", "quiet", "panic=-1", "mitigations=off", f"rxe_node={node}", f"rxe_nodes={count}",
             f"rxe_root={root}", f"rxe_out={out}"]
    return [qemu_path(), "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(cpus), "-m", str(memory),
            "-display", "none", "-monitor", "none", "-serial", "stdio", "-no-reboot", "-nodefaults",
            "-kernel", str(kernel), "-initrd", str(image), "-append", " ".join(words),
            "-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap",
            "-virtfs", f"local,path={out},mount_tag=out,security_model=none"]
