#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# tap.sh: prints TAP, for the scripts of qp/debs_suite.py, which end with its
# plan.
count=0

check() { # check NAME COMMAND...
	name=$1
	shift
	count=$((count + 1))
	# Its variables are its own.
	if ("$@") >/tmp/said 2>&1; then
		echo "ok $count - $name"
	else
		echo "not ok $count - $name"
		tail -n 30 /tmp/said | sed 's/^/# /'
	fi
}
