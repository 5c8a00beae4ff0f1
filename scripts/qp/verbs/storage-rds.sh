# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh disable=SC2034,SC2086,SC2154 # variables of `storage`, which sources this
#
# RDS: messages between two sockets, and memory of one that the other writes and
# reads.

start() {
	load rds_rdma
	# The first message connects.
	rds-transfer "$address" 1 0 >"$said" 2>&1 || fail "does not connect"
}

# A connection ends with the device or the module. The exit of the module flushes
# rds_wq, but a connection is shut down in a workqueue of its own
# (rds_conn_path_drop()), so that its receives are left, and warned of. Removing
# the device waits for them.
stop() {
	driver=/sys/bus/pci/drivers/qpair
	[ -n "$loaded" ] || { before=''; return; }
	case $device in
	qpair0) name=$(readlink $sys/device) name=${name##*/}; echo "$name" >$driver/unbind ;;
	rxe0) before=''; rdma link del rxe0 ;;
	esac
	until_it 10 is_unloaded rds_rdma
	[ $device = rxe0 ] || echo "$name" >$driver/bind
}

transfer() { rds-transfer "$address" 300 8 || fail "rds-transfer, status $?"; }
