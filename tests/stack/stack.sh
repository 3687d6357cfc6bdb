#!/usr/bin/env bash
# The real servers, without Docker: Kafka, Kafka Connect with Debezium, a source and a sink PostgreSQL.
#
#   stack.sh up [--install]        start what is not running, fetching first what is not there; --install: also Debian packages
#   stack.sh down                  stop everything and delete its data; logs stay in RUN/log
#   stack.sh run [--install] -- COMMAND...   up, the command with the environment below, down; the command's exit code
#   stack.sh start|stop|kill9|restart PART   PART: kafka, connect, source, sink; data stays
#   stack.sh env                   export lines for tests
#   stack.sh status                a line per part: running or stopped, pid, port, resident memory
#   stack.sh logs [PART]           the end of the logs
#   stack.sh psql source|sink ...  psql as superuser
#   stack.sh tool CLASS ...        one of Kafka's command line tools, e.g. org.apache.kafka.tools.TopicCommand
#
# Several stacks run side by side, each with a folder of its own:
#   SINK_REPAIR_STACK_RUN          data, logs, pid files (default: .stack/run in the repository)
#   SINK_REPAIR_STACK_CACHE        jars (default: .stack/lib in the repository)
#   SINK_REPAIR_STACK_PORTS        "kafka controller rest source sink" (default: five free ports)
#   SINK_REPAIR_STACK_BENCH=yes    durable PostgreSQL, all of the JVM's compilers, the Debezium JDBC sink
#   SINK_REPAIR_STACK_CONNECT_HEAP, SINK_REPAIR_STACK_KAFKA_HEAP   as for java -Xmx
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
. "$HERE/process.sh"
. "$HERE/need.sh"
. "$HERE/fetch.sh"
. "$HERE/kafka.sh"
. "$HERE/postgres.sh"

PARTS="source sink kafka connect"
PLUGINS=
INSTALL=${SINK_REPAIR_STACK_INSTALL:-no}
[ "${CI:-}" != true ] || INSTALL=yes

usage() { sed -n '2,/^set -e/s/^# \{0,1\}//p' "$SELF" | sed '$d'; exit "${1:-64}"; }

part_pid() { case $1 in kafka | connect) java_pid "$1" ;; source | sink) postgres_pid "$1" ;; *) usage >&2 ;; esac; }

start_part() {
  case $1 in
  kafka) start_kafka ;;
  connect) start_connect ;;
  source | sink) start_postgres "$1" ;;
  *) usage >&2 ;;
  esac
}

stop_part() {
  case $1 in
  kafka | connect) end_java "$1" TERM 30 ;;
  source | sink) stop_postgres "$1" fast ;;
  *) usage >&2 ;;
  esac
}

kill9_part() {
  case $1 in
  kafka | connect) end_java "$1" KILL 10 ;;
  source | sink) kill9_postgres "$1" ;;
  *) usage >&2 ;;
  esac
}

stop_unless_up() {
  local code=$?
  trap - EXIT
  say "start failed, stopping what runs"
  # A cluster that is half started could not be found: let the two finish first.
  wait
  stop_all
  exit $code
}

up() {
  check_needs
  settle_settings
  trap stop_unless_up EXIT
  trap 'exit 130' INT TERM HUP
  fetch_all
  # The two clusters start while the broker does; Connect needs the broker.
  local source sink
  start_postgres source & source=$!
  start_postgres sink & sink=$!
  start_kafka
  start_connect
  wait $source
  wait $sink
  trap - EXIT INT TERM HUP
}

# For when the data goes anyway: nothing needs to be flushed, so nothing is waited for.
stop_all() {
  local part
  [ -f "$RUN/settings" ] || return 0
  for part in connect kafka sink source; do kill9_part "$part"; done
}

down() {
  [ -f "$RUN/settings" ] || return 0
  find_postgres || true
  stop_all
  [ "$PGROOT" = "$RUN" ] || rm -rf "$PGROOT"
  rm -rf "$RUN/settings" "$RUN/kafka" "$RUN/source" "$RUN/sink" "$RUN"/*.properties "$RUN"/*.pid
}

environment() {
  printf 'export %s=%q\n' SINK_REPAIR_TEST_KAFKA "$BOOTSTRAP" SINK_REPAIR_TEST_CONNECT "$REST" \
    SINK_REPAIR_TEST_SOURCE "postgres://postgres@127.0.0.1:$SOURCE_PORT/source" \
    SINK_REPAIR_TEST_SINK "postgres://postgres@127.0.0.1:$SINK_PORT/sink" \
    SINK_REPAIR_TEST_STACK "$SELF" SINK_REPAIR_STACK_RUN "$RUN" SINK_REPAIR_STACK_CACHE "$CACHE"
}

group_gone() { ! kill -0 -- "-$1" 2>/dev/null; }

# Ends what the command left running, then the stack. $child is the command's process group.
end_run() {
  local code=$?
  trap - EXIT
  trap '' INT TERM HUP
  if [ -n "$child" ] && ! group_gone "$child"; then
    kill -TERM -- "-$child" 2>/dev/null || true
    wait_for 5 "the command ends after SIGTERM" group_gone "$child" || kill -KILL -- "-$child" 2>/dev/null || true
  fi
  down
  exit $code
}

# The command runs in a process group of its own, so that a signal to this script can end all of it before the stack.
run() {
  child=
  trap end_run EXIT
  trap 'exit 130' INT TERM HUP
  down
  "$SELF" up
  # shellcheck disable=SC1091
  . "$RUN/settings"
  name_ports
  eval "$(environment)"
  set -m
  "$@" </dev/null &
  child=$!
  set +m
  wait "$child"
}

status() {
  local part pid port
  for part in $PARTS; do
    case $part in kafka) port=$KAFKA_PORT ;; connect) port=$REST_PORT ;; *) port=$(port_of "$part") ;; esac
    if pid=$(part_pid "$part"); then
      printf '%-8s running  pid %-7s port %-6s %4s MB\n' "$part" "$pid" "$port" "$(resident "$pid")"
    else
      printf '%-8s stopped              port %s\n' "$part" "$port"
    fi
  done
}

logs() {
  local part
  for part in ${1:-$PARTS}; do
    case $part in
    kafka | connect) tail -n 40 "$RUN/log/$part.log" "$RUN/log/$part.out" ;;
    source | sink) as_postgres tail -n 40 "$(data_of "$part")/log" ;;
    *) usage >&2 ;;
    esac
  done
}

need_settings() {
  [ -f "$RUN/settings" ] || die "not up (no $RUN/settings)
hint: $SELF up"
  name_ports
  find_postgres || die "no PostgreSQL server binaries"
}

command=${1:-}
[ $# = 0 ] || shift
case $command in
up | run)
  if [ "${1:-}" = --install ]; then export SINK_REPAIR_STACK_INSTALL=yes; INSTALL=yes; shift; fi
  if [ "$command" = up ]; then up; status >&2; else
    [ "${1:-}" = -- ] && shift
    [ $# -gt 0 ] || usage >&2
    run "$@"
  fi
  ;;
down) down ;;
start | stop | kill9 | restart)
  need_settings
  [ $# = 1 ] || usage >&2
  case $command in
  start) start_part "$1" ;;
  stop) stop_part "$1" ;;
  kill9) kill9_part "$1" ;;
  restart) stop_part "$1" && start_part "$1" ;;
  esac
  ;;
env) need_settings && environment ;;
status) need_settings && status ;;
logs) need_settings && logs "$@" ;;
psql)
  need_settings
  part=${1:?source or sink}
  shift
  sql "$part" -d "$part" "$@"
  ;;
tool) need_settings && tool "$@" ;;
help | -h | --help) usage 0 ;;
*) usage >&2 ;;
esac
