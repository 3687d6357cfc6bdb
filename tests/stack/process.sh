# shellcheck shell=bash
# Processes by pid file. A pid alone is no proof: it counts only while its command line names this stack's folder.

# Prints the pid in file $1 when that process runs and its command line holds $2. A dead child that nobody has reaped
# has an empty command line, so it does not count.
running_pid() {
  local pid
  read -r pid 2>/dev/null <"$1" || return 1
  [ -r "/proc/$pid/cmdline" ] && tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF -- "$2" || return 1
  echo "$pid"
}

# wait_for SECONDS WHAT COMMAND...   polls until the command succeeds; fails, naming WHAT, when the time is up.
wait_for() {
  local tries=$(($1 * 20)) what=$2
  shift 2
  until "$@"; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || { say "timeout: $what"; return 1; }
    sleep 0.05
  done
}

# need_ports PORT...   a server that was just killed is gone a moment before its sockets are.
need_ports() {
  local port
  for port; do wait_for 5 "port $port is free" port_free "$port" || die "port $port is taken"; done
}
port_free() { ! port_taken "$1"; }

gone() { ! running_pid "$1" "$2" >/dev/null; }

# end PIDFILE MARK SIGNAL SECONDS   signals a process and waits; what does not end in time is killed.
end() {
  local pid
  if pid=$(running_pid "$1" "$2"); then
    kill "-$3" "$pid" 2>/dev/null || true
    wait_for "$4" "$2 ends after SIG$3" gone "$1" "$2" || kill -KILL "$pid" 2>/dev/null || true
    wait_for 10 "$2 ends after SIGKILL" gone "$1" "$2"
  fi
  rm -f "$1"
}

children_of() {
  local stat rest pid
  for stat in /proc/[0-9]*/stat; do
    # pid (name, may hold spaces) state parent ...
    { read -r rest <"$stat"; } 2>/dev/null || continue
    pid=${rest%% *}
    rest=${rest##*) }
    read -r _ rest _ <<<"$rest"
    [ "$rest" != "$1" ] || echo "$pid"
  done
}

# Resident memory of a process in MB.
resident() { awk '/^VmRSS/ { printf "%d", $2 / 1024 }' "/proc/$1/status" 2>/dev/null; }
