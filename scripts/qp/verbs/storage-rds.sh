# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh disable=SC2034,SC2086,SC2154 # variables of `storage`, which sources this
#
# RDS: messages between two sockets, and memory of one that the other writes and
# reads.

events="fault link fatal reset unbind remove unplug" idle=''
connections() { objects | sed 's/.*\( qp .*\) mr .*/\1/'; }
is_idle() { [ "$(connections)" = "$idle" ]; }

start() {
	load rds_rdma
	idle=$(connections)
	# The first message connects.
	rds-transfer "$address" 1 0 >"$said" 2>&1 || fail "does not connect"
}

# RDS shuts connections down in workqueues of their own, and waits for them neither
# when its module is unloaded nor when the device goes (rds_ib_unregister_client(),
# rds_ib_remove_one()): the kernel warns of what they still have. So a write with an
# invalid key ends them before; without the address none is made again. soft-RoCE
# delivers nothing without it.
stop() {
	[ -n "$loaded" ] || { before=''; return; }
	if [ $device = rxe0 ]; then
		before=''
		rdma link del rxe0
	elif [ -n "$idle" ] && ! { rds-transfer "$address" disconnect $ip addr del "$address/24" dev dummy0 >"$said" 2>&1 && until_it 60 is_idle; }; then
		cat "$said" >&2
		status=1 loaded='' before=''
		return
	fi
	until_it 10 is_unloaded rds_rdma
	[ $device = rxe0 ] || $ip addr replace "$address/24" dev dummy0
}

transfer() { rds-transfer "$address" 300 8 || fail "rds-transfer, status $?"; }

event() {
	what=$1
	started=$(requests)
	rds-transfer "$address" 100000 0 >"$folder/load" 2>&1 &
	fio=$!
	expect "no load" is_loaded
	case $what in
	fault) fail_once send ;;
	link) lose_link ;;
	*) disturb_device ;;
	esac
	sleep 2
	kill $fio
	wait $fio 2>/dev/null
	fio=''
	! [ -s "$folder/load" ] || fail "the messages: $(cat "$folder/load")"
	rds-transfer "$address" 30 2 || fail "rds-transfer, status $?"
	case $what in
	link) echo "$what: the connection stays" ;;
	*) echo "$what: connected again" ;;
	esac
	expect_no_faults
}
