"""The initial file system of a guest: busybox, this folder's `init`, and the kernel modules that Soft-RoCE needs.

Everything else a guest uses is the host's own file system, which it sees read-only (see `init`).
"""

import gzip
import pathlib
import re
import shutil
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
BUSYBOX = pathlib.Path("/bin/busybox")
BOOT = pathlib.Path("/boot")

# crc32_generic: without it rxe says "failed to init crc32 algorithm" when a device is added (Linux 6.1).
MODULES = ("crc32_generic", "crc32_pclmul", "virtio_pci", "virtio_net", "9pnet_virtio", "9p", "rdma_ucm", "rdma_rxe",
           "sch_tbf", "sch_ingress", "cls_u32", "act_gact")


class NotThere(Exception):
    """Something that a guest needs is not on this machine; the text says what."""


def version_key(path: pathlib.Path) -> list[int]:
    """Orders kernels as their versions are ordered."""
    return [int(number) for number in re.findall(r"\d+", path.name)]


def newest_kernel(boot: pathlib.Path = BOOT) -> pathlib.Path:
    """The newest kernel that can be booted. Raises NotThere."""
    kernels = sorted(boot.glob("vmlinuz-*"), key=version_key)
    if not kernels:
        raise NotThere(f"no kernel in {boot}: install linux-image-amd64")
    return kernels[-1]


def modules_of(release: str) -> list[pathlib.Path]:
    """The files of MODULES and of what they depend on, in the order of loading. Raises NotThere."""
    files: list[pathlib.Path] = []
    for name in MODULES:
        shown = subprocess.run(["/sbin/modprobe", "--set-version", release, "--show-depends", name],
                               capture_output=True, text=True, check=False)
        if shown.returncode != 0:
            raise NotThere(f"the kernel {release} has no module {name}: {shown.stderr.strip()}")
        for line in shown.stdout.splitlines():
            word, _, rest = line.partition(" ")
            path = pathlib.Path(rest.split()[0]) if rest else None
            if word == "insmod" and path and path not in files:  # "builtin NAME" needs nothing
                files.append(path)
    return files


def build_image(folder: pathlib.Path, kernel: pathlib.Path) -> pathlib.Path:
    """Makes the image in `folder` and returns its path. Raises NotThere."""
    if not BUSYBOX.exists():
        raise NotThere(f"no {BUSYBOX}: install busybox-static")
    root = folder / "root"
    for name in ("bin", "dev", "host", "modules", "proc"):
        (root / name).mkdir(parents=True)
    shutil.copy(BUSYBOX, root / "bin" / "busybox")
    shutil.copy(HERE / "init", root / "init")
    (root / "init").chmod(0o755)
    files = modules_of(kernel.name.removeprefix("vmlinuz-"))
    for file in files:
        shutil.copy(file, root / "modules" / file.name)
    (root / "modules" / "order").write_text("".join(f"{file.name}\n" for file in files), encoding="ascii")
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    archive = subprocess.run(["cpio", "--create", "--format=newc", "--quiet"], input=names.encode(), cwd=root,
                             stdout=subprocess.PIPE, check=True)
    image = folder / "initrd"
    image.write_bytes(gzip.compress(archive.stdout, 1))
    return image
