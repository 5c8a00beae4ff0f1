#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# In the guest: qmp COMMAND [NAME=VALUE]...: runs a command in QEMU's monitor,
# prints its answer, or, if that is an error, its text, and fails. Values are JSON
# strings, or raw JSON with NAME:=VALUE. For example: qmp device_del id=qpair0
command=$1
shift
arguments=
for word; do
	case $word in
	*:=*) arguments="$arguments,\"${word%%:=*}\":${word#*:=}" ;;
	*) arguments="$arguments,\"${word%%=*}\":\"${word#*=}\"" ;;
	esac
done
exec 8<>/dev/virtio-ports/qpair.qmp || exit 1
echo "{\"execute\":\"$command\",\"arguments\":{${arguments#,}}}" >&8
while read -r line <&8; do
	case $line in
	*'"return"'*)
		echo "$line"
		exit 0
		;;
	*'"error"'*)
		printf 'qmp: %s\n' "$line" | sed 's/{.*"desc": *"\(.*\)"}.*/\1/; s/\\\(["\\]\)/\1/g' >&2
		exit 1
		;;
	esac
done
exit 1
