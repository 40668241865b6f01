# Sections of a run, for .ci/run and .ci/nightly: each is timed, and one that fails does not keep the others from running, so that
# one run tells all there is to mend. To be sourced.
#
# A section alone writes what it says at once. Of sections beside each other each one's output is kept until it has ended, and then
# written whole.

# A section that hangs is ended and named.
SECTION_LIMIT=${SECTION_LIMIT:-40m}

results=()
failed=0
kept=$(mktemp -d)
beside=()

end_all() {
  local status=$? pid
  trap - EXIT
  for pid in "${beside[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait
  rm -rf "$kept"
  exit "$status"
}
trap end_all EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Ends the run: nothing further could succeed.
stop() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# heading TITLE COMMAND...
heading() {
  local title=$1
  shift
  printf '\n=== %s === %s\n' "$title" "$*"
}

# limited COMMAND...: within the time of a section; what it has started ends with this shell.
limited() {
  local pid status=0
  timeout --kill-after=30s "$SECTION_LIMIT" "$@" &
  pid=$!
  trap 'kill "$pid" 2>/dev/null; wait "$pid"; exit 143' TERM
  wait "$pid" || status=$?
  trap - TERM
  return "$status"
}

# ended TITLE SECONDS STATUS: the row of the summary.
ended() {
  local outcome=ok
  (($3 == 0)) || outcome="FAILED with exit code $3"
  printf '=== %s: %s after %d s ===\n' "$1" "$outcome" "$2"
  results+=("$(printf '%5d s  %-24s %s' "$2" "$1" "$outcome")")
  (($3 == 0)) || failed=1
}

# section TITLE COMMAND...: while no other one runs.
section() {
  local title=$1 started=$SECONDS status=0
  shift
  heading "$title" "$@"
  (limited "$@") || status=$?
  ended "$title" $((SECONDS - started)) "$status"
}

# kept_section TITLE COMMAND...: beside others, in a function that `beside` runs.
kept_section() {
  local title=$1 started=$SECONDS status=0 output
  shift
  output=$(mktemp "$kept/output.XXXXXX")
  limited "$@" >"$output" 2>&1 || status=$?
  {
    flock 8
    heading "$title" "$@"
    cat "$output"
    ended "$title" $((SECONDS - started)) "$status"
    printf '%s\t%s\n' "$failed" "${results[-1]}" >>"$kept/results"
  } 8>"$kept/lock"
  rm "$output"
}

# all_beside FUNCTION...: runs these functions beside each other, whose sections are `kept_section`s, and waits for all of them.
all_beside() {
  local function pid has_failed row
  : >"$kept/results"
  for function in "$@"; do
    "$function" &
    beside+=("$!")
  done
  for pid in "${beside[@]}"; do
    # Its sections have told; anything else is an error of the function itself.
    wait "$pid" || { printf 'a part of the run ended early\n' >&2; failed=1; }
  done
  beside=()
  while IFS=$'\t' read -r has_failed row; do
    results+=("$row")
    ((has_failed == 0)) || failed=1
  done <"$kept/results"
}

# The last command of a run.
summary() {
  printf '\n=== all sections, %d s ===\n' "$SECONDS"
  printf '%s\n' "${results[@]}"
  exit "$failed"
}
