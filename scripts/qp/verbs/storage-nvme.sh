# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh disable=SC2034,SC2086,SC2154 # variables of `storage`, which sources this
#
# NVMe over RDMA, of a disk in memory. After an event Linux's host either reconnects,
# and no I/O fails, or, without its device, has deleted its controller; then this
# connects again.

events="fault hostile limit link fatal reset unbind remove unplug"
io=/dev/nvme0n1 copy=/dev/ram0
nvmet=$config/nvmet
subsystem=$nvmet/subsystems/memory port=$nvmet/ports/1
host=11111111-2222-3333-4444-555555555555

# The port listens on any address: its listener on the address of a device ends with that.
export_disk() {
	mkdir -p $subsystem/namespaces/1 $port || fail "no nvmet"
	put 1 $subsystem/attr_allow_any_host
	put $copy $subsystem/namespaces/1/device_path
	put 1 $subsystem/namespaces/1/enable
	put ipv4 $port/addr_adrfam
	put rdma $port/addr_trtype
	put 0.0.0.0 $port/addr_traddr
	put 4420 $port/addr_trsvcid
	# A receive of the target has five SGEs then, which take two blocks.
	put 16384 $port/param_inline_data_size
	ln -s $subsystem $port/subsystems/ || fail "the target does not listen"
}

state() { cat /sys/class/nvme/nvme*/state 2>/dev/null || echo gone; }
connect() {
	echo "transport=rdma,traddr=$address,trsvcid=4420,nqn=memory,nr_io_queues=2,reconnect_delay=1,ctrl_loss_tmo=60,duplicate_connect,hostid=$host,hostnqn=nqn.2014-08.org.nvmexpress:uuid:$host" 2>>"$said" >/dev/nvme-fabrics
}
is_connected() { [ -b $io ] && [ "$(state)" = live ]; }
is_settled() { case $(state) in live | gone) ;; *) false ;; esac; }

start() {
	case $side in
	initiator) copy='' ;;
	*)
		load brd "nvmet_rdma${srq:+ use_srq=1}"
		mount_configfs
		export_disk
		;;
	esac
	[ $side != target ] || return 0
	load nvme_rdma
	# The target of another guest may not listen yet.
	expect "does not connect" connect
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

# More controllers, until the device has no FRMRs for another.
fill() {
	most=$(ibv_devinfo -v -d $device | awk '/max_mr:/ { print $2 }')
	each=$(regions)
	while connect; do :; done
	all=$(regions)
	[ $((all + each)) -gt "$most" ] || fail "max_mr is $most, and ULPs get $all"
	for controller in /sys/class/nvme/nvme[1-9]*/delete_controller; do
		[ ! -e "$controller" ] || echo 1 >"$controller"
	done
	expect "FRMRs are left" has_only_those
}
has_only_those() { [ "$(regions)" = "$each" ]; }
regions() { objects | sed 's/.* mr \([0-9]*\) .*/\1/'; }

# What the device has lost shows within a second.
recover() {
	sleep 2
	expect "the controller neither reconnects nor goes" is_settled
	if [ "$(state)" = gone ]; then
		case $what in fault | hostile | limit) fail "the controller is gone" ;; esac
		end="the controller is deleted; connected again"
		wait $fio
		expect "does not connect again" connect
		expect "no disk" is_connected
		return
	fi
	end="the controller has reconnected, and no I/O has failed"
	case $what in hostile | limit) end="the controller is still connected" ;; esac
	no_io_has_failed
}
