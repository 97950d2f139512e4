#!/bin/sh
# First process of a machine (see machines.py), in its own mount, pid, uts, ipc and network namespaces. It builds a root
# of its own, of which only /usr is the host's (and that below a layer of the machine's), and becomes the machine's command.
# Arguments: folder for the root, folder of the disk, name. Environment: MACHINE_BINDS, a file with lines "host folder<TAB>
# path in the machine"; MACHINE_COMMAND, a file with the command; MACHINE_TOOLS, programs for its PATH. Says "up" on descriptor 3 when all is mounted.
set -eu
new=$1 disk=$2 name=$3
mount --make-rprivate /
mount -t tmpfs -o mode=755 machine "$new"
cd "$new"

mkdir -p .layer/over .layer/work usr proc sys dev run old
mount -t overlay overlay -o "lowerdir=/usr,upperdir=$new/.layer/over,workdir=$new/.layer/work" usr
for link in /bin /sbin /lib /lib32 /lib64 /libx32; do
  if [ -L "$link" ]; then cp -a "$link" "$new$link"; elif [ -d "$link" ]; then mkdir "$new$link" && mount --bind "$link" "$new$link"; fi
done
for folder in etc home root srv sweepstack tmp var workspace; do
  [ -d "$disk/$folder" ] || continue
  mkdir "$folder"
  mount --bind "$disk/$folder" "$folder"
done
if [ -d /var/lib/dpkg ]; then mkdir -p var/lib/dpkg && mount --bind -o ro /var/lib/dpkg var/lib/dpkg; fi

mount -t proc proc proc
mount --rbind /sys sys
mount -t tmpfs -o mode=755 dev dev
for node in null zero full random urandom tty; do : > "dev/$node"; mount --bind "/dev/$node" "dev/$node"; done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts dev/pts
mount -t tmpfs -o mode=1777 shm dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s /proc/self/fd/0 dev/stdin
ln -s /proc/self/fd/1 dev/stdout
ln -s /proc/self/fd/2 dev/stderr
mkdir -p run/sshd run/lock

tab=$(printf '\t')
while IFS="$tab" read -r host inside; do
  mkdir -p "$new$inside"
  mount --bind "$host" "$new$inside"
done < "$MACHINE_BINDS"
rm -f usr/bin/nvidia-smi usr/local/bin/nvidia-smi
mkdir -p usr/local/bin
cp -a "$MACHINE_TOOLS/." usr/local/bin/
cp "$MACHINE_COMMAND" run/command
hostname "$name"
unset MACHINE_BINDS MACHINE_COMMAND MACHINE_TOOLS PWD OLDPWD

pivot_root . old
cd /
umount -l /old
rmdir /old
echo up >&3
exec 3>&-
exec /bin/sh /run/command
