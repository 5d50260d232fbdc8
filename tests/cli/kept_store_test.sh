#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The recording kept in investigations/ opens on any machine, from a folder that
# may not be written to, and gives the answers that its page states.
#   kept_store_test.sh INGERO STORE SCHEMA_TEST
set -euo pipefail
ingero=$1 store=$2 schema_test=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
fail() { echo "FAIL $*"; failed=1; }

before=$(sha256sum "$store/data.mdb")
first() { # arguments of explain -> cause of the first finding
  "$ingero" explain --db "$store" --json "$@" |
    python3 -c 'import json,sys; print(json.load(sys.stdin)["findings"][0]["cause"])'
}
expect() { # cause, arguments
  local cause=$1 got
  shift
  got=$(first "$@") || { fail "explain $* failed"; return; }
  [ "$got" = "$cause" ] || fail "explain $*: first finding $got, not $cause"
}
expect in-process-loading --since 5m
expect pageable-copy --from 12.12s --to 12.957s
expect in-process-loading --from 13.957s --to 100.912s
expect loader-cpu-bound --from 101.912s --to 122.367s

# The reports kept beside it are what this version prints. To accept new ones:
# INGERO_UPDATE_GOLDEN=1, then read the diff.
printed() { # file, arguments of explain
  local file=$store/$1
  shift
  (cd "$store/../.." && COLUMNS=100 TZ=UTC "$ingero" explain \
    --db "investigations/${store##*/}" "$@") >"$work/printed"
  [ -z "${INGERO_UPDATE_GOLDEN:-}" ] || cp "$work/printed" "$file"
  diff "$file" "$work/printed" || fail "explain $* is not ${file##*/}"
}
printed explain.txt
printed per-process.txt --per-process
printed direct.txt --from 12.120s --to 12.957s
printed 0-workers.txt --from 13.957s --to 100.912s
printed 4-workers.txt --from 101.912s --to 122.367s
printed 4-workers-per-process.txt --from 101.912s --to 122.367s --per-process

"$ingero" explain --db "$store" --json >"$work/explain.json"
python3 "$schema_test" "$work/explain.json" >"$work/schema" 2>&1 ||
  { cat "$work/schema"; fail "the JSON is not that of the schema"; }
"$ingero" diff "$store" "$store" --json >"$work/diff.json"
python3 "$schema_test" "$work/diff.json" >"$work/schema" 2>&1 ||
  { cat "$work/schema"; fail "the JSON of diff is not that of the schema"; }
grep -q "No significant difference" "$work/diff.json" ||
  fail "a recording differs from itself"
"$ingero" diff "$store" "$store" --fail-on starved:0 >"$work/text" ||
  fail "a recording is worse than itself"
# It was merged before steps were looked for.
"$ingero" diff "$store" "$store" --fail-on slower >"$work/text" 2>"$work/err" &&
  fail "slower was judged without steps"
grep -q "needs steps" "$work/err" || fail "it is not said that steps are needed"
"$ingero" explain --db "$store" --since 5m --per-process >"$work/text"
grep -q "Workers of python3/2912" "$work/text" || fail "workers are not listed"
grep -q "cudaMemcpyAsync" "$work/text" || fail "operations are not listed"
# 49,307 switches and 21,760 calls, as the page says.
[ "$("$ingero" dump "$store" --table calls --format jsonl | wc -l)" = 21760 ] ||
  fail "the store does not hold 21,760 calls"

[ "$before" = "$(sha256sum "$store/data.mdb")" ] || fail "the store was changed"
[ "$failed" = 0 ] && echo "ok: 4 windows, schema, per process, calls"
exit "$failed"
