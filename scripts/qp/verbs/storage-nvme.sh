# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh disable=SC2086,SC2154 # variables of `storage`, which sources this
#
# NVMe over RDMA, of a disk in memory. Events, under I/O:
#	fault	a WRITE of the target fails
#	reset	of the function
#	unbind	of the driver, which is bound again
#	remove	of the function by sysfs, and a rescan
#	unplug	of the device, which is plugged in again
# Linux's host either reconnects, and no I/O fails, or, without its device, has
# deleted its controller; then this connects again.

disk=/dev/ram0 remote=/dev/nvme0n1
nvmet=$config/nvmet
subsystem=$nvmet/subsystems/memory port=$nvmet/ports/1
host=11111111-2222-3333-4444-555555555555

# The port listens on any address: its listener on the address of a device ends with that.
export_disk() {
	mkdir -p $subsystem/namespaces/1 $port || fail "no nvmet"
	put 1 $subsystem/attr_allow_any_host
	put $disk $subsystem/namespaces/1/device_path
	put 1 $subsystem/namespaces/1/enable
	put ipv4 $port/addr_adrfam
	put rdma $port/addr_trtype
	put 0.0.0.0 $port/addr_traddr
	put 4420 $port/addr_trsvcid
	ln -s $subsystem $port/subsystems/ || fail "the target does not listen"
}

state() { cat /sys/class/nvme/nvme*/state 2>/dev/null || echo gone; }
connect() {
	echo "transport=rdma,traddr=$address,trsvcid=4420,nqn=memory,nr_io_queues=2,reconnect_delay=1,ctrl_loss_tmo=60,hostid=$host,hostnqn=nqn.2014-08.org.nvmexpress:uuid:$host" >/dev/nvme-fabrics
}
is_connected() { [ -b $remote ] && [ "$(state)" = live ]; }
is_away() { [ "$(state)" != live ]; }
is_settled() { case $(state) in live | gone) ;; *) false ;; esac; }

start() {
	load brd "nvmet_rdma${srq:+ use_srq=1}" nvme_rdma
	mount_configfs
	export_disk
	connect || fail "does not connect"
	expect "no disk" is_connected
	[ -z "$srq" ] || objects | grep -q ' srq [1-9]' || fail "the target has no SRQ"
}

stop() {
	for controller in /sys/class/nvme/nvme*/delete_controller; do
		[ ! -e "$controller" ] || echo 1 >"$controller"
	done
	rm -f $port/subsystems/memory
	remove_directories $port $subsystem/namespaces/1 $subsystem
}

transfer() {
	all_sizes $remote
	same $remote $disk
}

requests() { counter send_wqes; }
is_loaded() { [ "$(requests)" -gt $((started + 400)) ]; }
is_gone() { [ ! -d $sys ]; }
faults() { qmp qom-set path=/machine/peripheral/$device property=faults "value=$1" >"$said" || fail "no fault points"; }
disturb_device() {
	pci=$(readlink -f $sys/device)
	case $what in
	fault) faults fail=rem-access,opcode=write,nth=5; expect "no error recovery" is_away; faults '' ;;
	unplug)
		qmp device_del id=$device >"$said" || fail "QEMU does not unplug it"
		expect "the device stays" is_gone
		until_it 10 qmp device_add driver=qpair id=$device bus=port0 "mac=$(cat /sys/class/net/dummy0/address)" >"$said" 2>&1 ||
			fail "QEMU does not plug it in"
		;;
	*) lose "$pci" "$what" || fail "refused" ;;
	esac
}
event() {
	what=$1
	started=$(requests)
	fio_on $remote --name=load --ioengine=libaio --iodepth=16 --bsrange=4k-64k --size=8m --time_based --runtime=600 --loops=1000 --verify_backlog=64
	expect "no load" is_loaded
	disturb_device
	expect "the device does not come back" is_up
	# What the device has lost shows within a second.
	sleep 2
	expect "the controller neither reconnects nor goes" is_settled
	if [ "$(state)" = gone ]; then
		[ "$what" != fault ] || fail "the controller is gone"
		end="the controller is deleted; connected again"
		wait $fio
		expect "does not connect again" connect
		expect "no disk" is_connected
	else
		end="the controller has reconnected, and no I/O has failed"
		started=$(requests)
		expect "no load afterwards" is_loaded
		kill -TERM $fio
		wait $fio
		grep -q ' err= 0:' "$said" || fail "fio fails"
	fi
	fio=''
	! grep '^verify:' "$said" || fail "other bytes than those that were written"
	echo "$what: $end"
	any_size $remote
	same $remote $disk
	[ "$(counter dma_faults)$(counter violations)" = 00 ] || fail "DMA faults or violations"
}
