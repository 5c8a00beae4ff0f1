#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# The guest's first process: mounts what tests need, loads the modules, runs
# the command, cleans up, and powers off.
#
# It communicates with qp/guest.py through the ports of a virtio console, by
# name:
#	qpair.control	a line per event: "status N", "end", "failed WHY"
#	qpair.stdin, qpair.stdout, qpair.stderr	the command's own
#	qpair.qmp	QEMU's monitor, for tests that pull devices (bin/qmp)
# /qpair/settings (shell assignments) and /qpair/command come with the run.

export PATH=/bin:/selftests HOME=/root USER=root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
[ -c /dev/null ] || mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts 2>/dev/null # not in every kernel
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
for fs in debug:debugfs tracing:tracefs; do
	[ ! -d "/sys/kernel/${fs%%:*}" ] || mount -t "${fs##*:}" none "/sys/kernel/${fs%%:*}" 2>/dev/null
done
ln -s /proc/self/fd /dev/fd
ip link set lo up 2>/dev/null
exec </dev/null >/dev/console 2>&1
modules='' ours='' share='' folder=/ shell='' input='' leaks='' sleeps=''
programs='' coverage=''
# shellcheck source=/dev/null
. /qpair/settings

finish() {
	[ -z "${control:-}" ] || echo "$1" >&9
	# The machine does not power off after an image was restored. Its reset ends
	# QEMU as well.
	[ -z "$sleeps" ] || reboot -f
	poweroff -f
	sleep 60
}

# fail WHY: this guest cannot run the command.
fail() {
	echo "qpair-init: cannot go on: $1"
	finish "failed $1"
}

# Each is a file and the options of the module.
for module in $modules; do
	# shellcheck disable=SC2086 # words
	(IFS=,; insmod /modules/$module) || fail "insmod $module"
done

# The ports get their names a little after insmod has returned.
name_ports() {
	mkdir -p /dev/virtio-ports
	for port in /sys/class/virtio-ports/*; do
		name=$(cat "$port/name" 2>/dev/null)
		[ -z "$name" ] || ln -sf "../${port##*/}" "/dev/virtio-ports/$name"
	done
}
open_ports() {
	tries=0
	while name_ports && ! { [ -c /dev/virtio-ports/qpair.control ] &&
		[ -c /dev/virtio-ports/qpair.stdout ] && [ -c /dev/virtio-ports/qpair.stderr ]; }; do
		tries=$((tries + 1))
		[ $tries -lt 500 ] || fail "no virtio console"
		usleep 10000
	done
	exec 9>/dev/virtio-ports/qpair.control
	control=yes
}

# After a suspend no process can write to a port: virtcons_restore() of Linux
# 7.3 asks the host whether it has the port open before there is a buffer for
# the answer. So the driver must be bound again before the output can be
# written.
reopen_ports() {
	exec 9>&-
	control=''
	rm -r /dev/virtio-ports
	driver=/sys/bus/virtio/drivers/virtio_console
	for path in /sys/bus/virtio/devices/*; do
		# The ID of a console. The command may have unbound it.
		[ "$(cat "$path/device")" = 0x0003 ] || continue
		[ ! -e "$driver/${path##*/}" ] || echo "${path##*/}" >$driver/unbind
		echo "${path##*/}" >$driver/bind
	done
	open_ports
	cat /tmp/stdout >/dev/virtio-ports/qpair.stdout
	cat /tmp/stderr >/dev/virtio-ports/qpair.stderr
}
open_ports

if [ -n "$share" ]; then
	mkdir -p "$share"
	mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=mmap,access=any share "$share" ||
		fail "mounting the shared folder $share"
fi
# The disk of programs, by its serial number: /usr is on it, and the directories
# that are links into /usr.
if [ -n "$programs" ]; then
	for disk in /sys/block/vd*; do
		[ "$(cat "$disk/serial" 2>/dev/null)" != "$programs" ] || disk_of_programs=/dev/${disk##*/}
	done
	mount -t squashfs -o ro "${disk_of_programs:-none}" /programs || fail "mounting the disk of programs"
	ln -sfn /programs/usr /usr
	ln -s usr/lib64 /
	# It may have modules.
	mkdir -p /lib
	ln -s /usr/lib/* /lib/
	PATH=$PATH:/usr/bin:/usr/sbin
fi
if [ -e /dev/virtio-ports/qpair.qmp ]; then
	qmp qmp_capabilities >/dev/null || fail "QEMU's monitor does not answer"
fi
if [ -n "$coverage" ]; then
	insmod /qpair/qpair_coverage.ko || fail "insmod qpair_coverage.ko"
fi
for name in $ours; do
	insmod "/qpair/$name.ko" || fail "insmod $name.ko"
done
echo ready >&9

cd "$folder" || cd /
if [ -n "$shell" ]; then
	[ ! -s /qpair/command ] || sh /qpair/command
	echo "A shell in the guest. Its end (Ctrl-D) powers off; Ctrl-A X kills QEMU."
	setsid cttyhack sh -l </dev/console
	status=$?
else
	stdin=/dev/null
	[ -z "$input" ] || stdin=/dev/virtio-ports/qpair.stdin
	out=/dev/virtio-ports/qpair.stdout err=/dev/virtio-ports/qpair.stderr
	[ -z "$sleeps" ] || out=/tmp/stdout err=/tmp/stderr
	sh /qpair/command <"$stdin" >$out 2>$err 9>&-
	status=$?
	[ -z "$sleeps" ] || reopen_ports
fi
echo "status $status" >&9

# Processes that the command left running may hold files of the device.
cd /
kill -9 -1
for name in $ours; do
	[ -d "/sys/module/$(echo "$name" | tr - _)" ] || continue
	tries=0
	until rmmod "$name" 2>/tmp/rmmod; do
		tries=$((tries + 1))
		if [ $tries -eq 100 ]; then
			echo "qpair-init: failed to remove the module: $(cat /tmp/rmmod)" >/dev/kmsg
			break
		fi
		usleep 20000
	done
done
if [ -n "$coverage" ]; then
	(cd /sys/kernel/debug/qpair_coverage && cat at data cnts) >/dev/virtio-ports/qpair.coverage
	rmmod qpair_coverage
	# There is none if no program with counters has run.
	for file in /tmp/counters-*; do
		[ ! -e "$file" ] || cat "$file"
	done >/dev/virtio-ports/qpair.programs
fi
if [ -n "$leaks" ] && [ -e /sys/kernel/debug/kmemleak ]; then
	# kmemleak skips objects younger than five seconds, and one scan may still see
	# a stale pointer.
	sleep 6
	echo scan >/sys/kernel/debug/kmemleak
	echo scan >/sys/kernel/debug/kmemleak
	cat /sys/kernel/debug/kmemleak >/tmp/leaks
	[ ! -s /tmp/leaks ] || cat /tmp/leaks >/dev/console
fi
[ -z "$share" ] || umount "$share"
finish end
