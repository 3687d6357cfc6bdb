# shellcheck shell=bash
# The broker (KRaft, one node) and the Connect worker (distributed mode), as plain Java processes.

# What every JVM here gets. Serial collection and the quick compiler keep two cores free for what is tested.
jvm_flags() {
  if [ "$BENCH" = no ]; then echo -XX:+UseSerialGC -XX:TieredStopAtLevel=1; else echo -XX:+UseG1GC; fi
}

# launch PART HEAP CLASS ARGS...   in a session of its own, so that Ctrl-C reaches only the script that stops it.
launch() {
  local part=$1 heap=$2 class=$3
  shift 3
  # shellcheck disable=SC2046  # flags are separate words
  setsid "$JAVA" -Xms64m "-Xmx$heap" $(jvm_flags) -Dsink-repair.stack="$RUN/$part" -Dstack.log="$RUN/log/$part.log" \
    -Dlog4j2.configurationFile="$HERE/conf/log4j2.properties" -cp "$CACHE/broker/*" "$class" "$@" \
    >>"$RUN/log/$part.out" 2>&1 </dev/null &
  echo $! >"$RUN/$part.pid"
  # Or the shell would announce the end of a server that is killed.
  disown
  # Until it is Java that runs, the pid file proves nothing, and nobody could stop it.
  wait_for 10 "$part runs" started_or_dead "$part" $!
}
started_or_dead() { java_pid "$1" >/dev/null || ! kill -0 "$2" 2>/dev/null; }

java_pid() { running_pid "$RUN/$1.pid" "-Dsink-repair.stack=$RUN/$1 "; }
end_java() { end "$RUN/$1.pid" "-Dsink-repair.stack=$RUN/$1 " "$2" "$3"; }

# One of Kafka's own command line tools; about a second each.
tool() {
  "$JAVA" -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData \
    -Dlog4j2.configurationFile="$HERE/conf/log4j2-tools.properties" -cp "$CACHE/broker/*" "$@"
}

# still_starts PART CONDITION...   for wait_for: true when the condition holds; a JVM that has died ends the wait.
still_starts() {
  local part=$1
  shift
  "$@" && return 0
  java_pid "$part" >/dev/null || die "$part ended while starting; see $RUN/log/$part.log and $part.out
$(tail -5 "$RUN/log/$part.out" "$RUN/log/$part.log" 2>/dev/null)"
  return 1
}

# Not `grep -q`: it would end at the first hit, and a broker that goes on logging would end `tail` with an error.
broker_ready() { tail -c +"$1" "$RUN/log/kafka.log" 2>/dev/null | grep "Kafka Server started" >/dev/null; }
connect_ready() { curl -fs -m 5 -o /dev/null "$REST/connectors"; }

start_kafka() {
  local from
  java_pid kafka >/dev/null && return 0
  need_ports "$KAFKA_PORT" "$CONTROLLER_PORT"
  render "$HERE/conf/kafka.properties.in" >"$RUN/kafka.properties"
  if [ ! -f "$RUN/kafka/meta.properties" ]; then
    # A cluster id is 16 random bytes in base64 with URL characters; asking Kafka for one costs another second.
    tool kafka.tools.StorageTool format -t "A$(head -c 16 /dev/urandom | base64 | tr '+/' '-_' | cut -c2-22)" \
      -c "$RUN/kafka.properties" >"$RUN/log/kafka-format.log" 2>&1 || die "format: $(cat "$RUN/log/kafka-format.log")"
  fi
  from=$(($(stat -c %s "$RUN/log/kafka.log" 2>/dev/null || echo 0) + 1))
  launch kafka "$KAFKA_HEAP" kafka.Kafka "$RUN/kafka.properties"
  wait_for 60 "Kafka is ready" still_starts kafka broker_ready "$from"
}

start_connect() {
  java_pid connect >/dev/null && return 0
  need_ports "$REST_PORT"
  PLUGINS=$CACHE/source
  [ "$BENCH" = no ] || PLUGINS=$PLUGINS,$CACHE/jdbc
  render "$HERE/conf/connect.properties.in" >"$RUN/connect.properties"
  launch connect "$CONNECT_HEAP" org.apache.kafka.connect.cli.ConnectDistributed "$RUN/connect.properties"
  wait_for 90 "Connect answers" still_starts connect connect_ready
}
