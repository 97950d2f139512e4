#!/bin/busybox sh
# The first process of a small machine. The kernel's command line says what it is: role=server, or role=NAME with nfs=OPTIONS and run=ARGUMENTS.
export PATH=/bin:/sbin:/usr/bin:/usr/sbin
/bin/busybox mkdir -p /sbin /usr/bin /usr/sbin
/bin/busybox --install -s
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp
for module in $(cat /modules/order); do insmod /modules/$module.ko; done
said() { sed -n "s/.* $1=\([^ ]*\).*/\1/p" /proc/cmdline; }
role=$(said role)
hostname $role
ip link set lo up; ip link set eth0 up; ip addr add 10.0.2.15/24 dev eth0; ip route add default via 10.0.2.2

if [ $role = server ]; then
  mount -t ext4 /dev/vda /export
  chmod 777 /export
  mount -t nfsd nfsd /proc/fs/nfsd
  echo 10 > /proc/fs/nfsd/nfsv4leasetime || echo "lease refused"; echo 10 > /proc/fs/nfsd/nfsv4gracetime || echo "grace refused"
  if [ $(said v3) = 1 ]; then
    $(cat /python-path) -S -E /code/tests/simulators/nfs/mount_server.py &
    while [ ! -e /tmp/ready-111 -o ! -e /tmp/ready-20048 ]; do sleep 0.1; done
  else
    echo "-3" > /proc/fs/nfsd/versions || echo "versions refused"
  fi
  echo "tcp 2049" > /proc/fs/nfsd/portlist
  echo 4 > /proc/fs/nfsd/threads
  # What mountd would answer: each client is 10.0.2.2, and may have /export (9218: insecure port, no subtree check, a file system id).
  echo "nfsd 10.0.2.2 2000000000 all" > /proc/net/rpc/auth.unix.ip/channel || echo "client refused"
  echo "all /export 2000000000 9218 65534 65534 0" > /proc/net/rpc/nfsd.export/channel || echo "export refused"
  echo 'all 1 \x00000000 2000000000 /export' > /proc/net/rpc/nfsd.fh/channel || echo "handle refused"
  echo "READY"
  while :; do sleep 3600; done
fi
for try in 1 2 3 4 5; do
  mount -t nfs$(said nfs | sed -n 's/^vers=4.*/4/p') -o $(said nfs),addr=10.0.2.2,clientaddr=10.0.2.15,sec=sys 10.0.2.2:$(said path) /mnt && break
  echo "not mounted: $(said nfs)"; sleep 2
done
grep ' nfs' /proc/mounts || poweroff -f
echo "READY"
cd /tmp
$(cat /python-path) -S -E /code/$(said run | tr , ' ')
echo "ENDED $?"
poweroff -f
