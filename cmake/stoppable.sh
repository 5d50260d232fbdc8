# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For scripts that build or test, to be sourced: what they started ends with
# them. Bash alone leaves it behind: killed by SIGTERM it tells nobody, and what
# it runs in the background does not get Ctrl-C.
#
#   stoppable COMMAND...     runs it; its exit status
#   start_stoppable COMMAND... ; wait_for_stoppable     the same in two steps
#
# Its standard input is empty: it has a process group of its own, and may not
# read from the terminal.

stoppable_group=
stoppable_log=  # a file to remove then

start_stoppable() {
  set -m
  "$@" </dev/null &
  stoppable_group=$!
  set +m
}

wait_for_stoppable() {
  local status=0
  wait "$stoppable_group" || status=$?
  stoppable_group=
  return "$status"
}

stoppable() {
  start_stoppable "$@"
  wait_for_stoppable || return  # the ERR trap is of the caller's line
}

stop_and_die() {
  local group=$stoppable_group
  stoppable_group=
  trap - ERR
  if [ -n "$group" ]; then
    kill -TERM -- "-$group" 2>/dev/null || true
    wait "$group" 2>/dev/null || true
  fi
  [ -z "$stoppable_log" ] || rm -f "$stoppable_log"
  trap - "$1"
  kill "-$1" $$
}

for stoppable_signal in INT TERM HUP; do
  # shellcheck disable=SC2064
  trap "stop_and_die $stoppable_signal" "$stoppable_signal"
done

# The comment at the beginning of the script that calls it.
print_usage() {
  sed -n '3,/^[^#]/{s/^# \{0,1\}//p}' "$0"
}
