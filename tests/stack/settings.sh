# shellcheck shell=bash
# shellcheck disable=SC2034  # the scripts that source this file use the values
# What runs, where it lives and on which ports. Everything can be given from outside; a stack that is up keeps what it
# was started with, in $RUN/settings, so that later commands need only the same SINK_REPAIR_STACK_RUN.

# Kafka 4.4 removes a class that Debezium 3.6.1 needs: the connector then says RUNNING while its task has failed.
KAFKA_VERSION=4.3.1
DEBEZIUM_POSTGRES_VERSION=3.6.1.Final
# The newest JDBC sink that Maven Central serves. Only benchmarks need it.
DEBEZIUM_JDBC_VERSION=3.5.0.Final
LOG4J_VERSION=2.25.5

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
REPO=$(cd "$HERE/../.." && pwd)
RUN=${SINK_REPAIR_STACK_RUN:-$REPO/.stack/run}
CACHE=${SINK_REPAIR_STACK_CACHE:-$REPO/.stack/lib}
SELF=$HERE/stack.sh

# The heap limits are far above what tests need; JVMs take what they use.
KAFKA_HEAP=${SINK_REPAIR_STACK_KAFKA_HEAP:-512m}
CONNECT_HEAP=${SINK_REPAIR_STACK_CONNECT_HEAP:-768m}
# Tests gain from the quick compiler alone (a JVM lives for seconds); a benchmark must not be given a slow peer.
BENCH=${SINK_REPAIR_STACK_BENCH:-no}
PORTS=${SINK_REPAIR_STACK_PORTS:-}
PGROOT=

# A stack that is up is asked about with its own settings.
# shellcheck disable=SC1091
[ ! -f "$RUN/settings" ] || . "$RUN/settings"

die() { echo "stack: $*" >&2; exit 1; }
say() { echo "stack: $*" >&2; }

port_taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Five ports in a row that nothing listens on, below the range from which the kernel takes outgoing ports. The start
# depends on the folder, so that stacks started at the same moment in different folders do not meet.
free_ports() {
  local base port tries
  base=$((20000 + $(cksum <<<"$RUN" | cut -d' ' -f1) % 1000 * 10))
  for ((tries = 0; tries < 100; tries++)); do
    for ((port = base; port < base + 5; port++)); do port_taken "$port" && break; done
    if [ "$port" = $((base + 5)) ]; then echo "$base $((base + 1)) $((base + 2)) $((base + 3)) $((base + 4))"; return; fi
    base=$((base + 10))
  done
  die "no five free ports in a row; set SINK_REPAIR_STACK_PORTS=\"kafka controller rest source sink\""
}

name_ports() {
  read -r KAFKA_PORT CONTROLLER_PORT REST_PORT SOURCE_PORT SINK_PORT <<<"$PORTS"
  [ -n "${SINK_PORT:-}" ] || die "SINK_REPAIR_STACK_PORTS needs five numbers: kafka controller rest source sink"
  BOOTSTRAP=127.0.0.1:$KAFKA_PORT
  REST=http://127.0.0.1:$REST_PORT
}

# Decides what is still open and writes it down; from here on the stack has these settings until `down`.
settle_settings() {
  mkdir -p "$RUN/log"
  [ -n "$PORTS" ] || PORTS=$(free_ports)
  # The server refuses to run as root, and its user may not be able to reach this folder (a clone below /root).
  if [ -z "$PGROOT" ]; then
    PGROOT=$RUN
    if [ "$(id -u)" = 0 ] && ! (cd / && runuser -u postgres -- test -x "$RUN"); then
      PGROOT=$(mktemp -d "${TMPDIR:-/tmp}/sink-repair-stack.XXXXXX")
      chmod 755 "$PGROOT"
    fi
  fi
  printf '%s\n' "PORTS='$PORTS'" "PGROOT='$PGROOT'" "KAFKA_HEAP=$KAFKA_HEAP" "CONNECT_HEAP=$CONNECT_HEAP" \
    "BENCH=$BENCH" "CACHE='$CACHE'" >"$RUN/settings"
  name_ports
}

# Fills in a file's @NAME@ placeholders.
render() {
  sed -e "s|@RUN@|$RUN|g" -e "s|@KAFKA_PORT@|$KAFKA_PORT|g" -e "s|@CONTROLLER_PORT@|$CONTROLLER_PORT|g" \
    -e "s|@REST_PORT@|$REST_PORT|g" -e "s|@PLUGINS@|$PLUGINS|g" "$1"
}
