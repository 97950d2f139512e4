"""Small Linux machines with kernels of their own: one is an NFS server (knfsd), the others are its clients.

QEMU emulates them, without KVM. Each has Debian's kernel, busybox, a Python and the files of a test in memory, nothing
else. `scripts/setup --nfs` gets QEMU, busybox and the kernel.
"""
