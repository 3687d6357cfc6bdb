#!/usr/bin/env bash
# Connectors on the stack's Connect worker.
#
#   connector.sh put NAME TEMPLATE[,TEMPLATE...] [VARIABLE=value...] [property=value...]
#   connector.sh running NAME [SECONDS]    wait until the connector and its task run; fail at once when the task failed
#   connector.sh restart NAME              the connector and its tasks, failed ones too
#   connector.sh status NAME
#   connector.sh delete NAME               also forgets its offsets; slots and topics stay
#
# A template is connectors/TEMPLATE.properties; later ones override earlier ones, properties given here all of them.
# `source` stands for source,route-$ROUTE. Variables of a source (all but TABLES have a default):
#   TABLES=schema.table,...  PREFIX (NAME)  SLOT, PUBLICATION (NAME in small letters, other characters as _)
#   DATABASE (source)  PARTITIONS (1)  SCHEMAS (false)  SIGNAL_TOPIC (PREFIX-signal; one partition, must be there already)
#   ROUTE: none, envelope (the default), one, outbox   TOPIC: where markers go (PREFIX.<first table>)
#   MARKERS: the prefix of logical messages (sink-repair)
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
. "$HERE/process.sh"
[ -f "$RUN/settings" ] || die "not up (no $RUN/settings)
hint: $SELF up"
name_ports

usage() { sed -n '2,/^set -e/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d' >&2; exit 64; }

# `key=value` lines, as in a .properties file, to a JSON object of strings; the last value of a key counts. A backslash
# escapes, as in those files.
to_json() {
  awk '
    /^[ \t]*(#|$)/ { next }
    { at = index($0, "="); key = substr($0, 1, at - 1); value = substr($0, at + 1)
      if (!(key in values)) order[++n] = key
      gsub(/"/, "\\\"", value); values[key] = value }
    END { printf "{"; for (i = 1; i <= n; i++) printf "%s\"%s\":\"%s\"", (i > 1 ? "," : ""), order[i], values[order[i]]; print "}" }'
}

# A literal replacement for sed.
literal() { local v=${1//\\/\\\\}; v=${v//|/\\|}; echo "${v//&/\\&}"; }
# The regular expression for a name, with the backslash doubled as .properties files want it, for sed.
as_regex() { literal "${1//./\\\\.}"; }

put() {
  local name=$1 templates=$2 argument own='' template
  local TABLES='' PREFIX=$1 SLOT PUBLICATION DATABASE=source PARTITIONS=1 SCHEMAS=false SIGNAL_TOPIC='' ROUTE=envelope
  local TOPIC='' MARKERS=sink-repair
  SLOT=$(tr '[:upper:]' '[:lower:]' <<<"$name" | tr -c 'a-z0-9\n' _)
  PUBLICATION=$SLOT
  shift 2
  for argument; do
    case $argument in
    TABLES=* | PREFIX=* | SLOT=* | PUBLICATION=* | DATABASE=* | PARTITIONS=* | SCHEMAS=* | SIGNAL_TOPIC=* | ROUTE=* | TOPIC=* | MARKERS=*)
      printf -v "${argument%%=*}" %s "${argument#*=}" ;;
    # Values from the command line are plain: their backslashes are doubled here.
    [a-z]*=*) own+=${argument//\\/\\\\}$'\n' ;;
    *) usage ;;
    esac
  done
  [ "$templates" != source ] || templates=source,route-$ROUTE
  SIGNAL_TOPIC=${SIGNAL_TOPIC:-$PREFIX-signal}
  TOPIC=${TOPIC:-$PREFIX.${TABLES%%,*}}
  {
    for template in ${templates//,/ }; do
      sed -e "s|@PREFIX_RE@|$(as_regex "$PREFIX")|g" -e "s|@PREFIX@|$(literal "$PREFIX")|g" -e "s|@SLOT@|$SLOT|g" \
        -e "s|@PUBLICATION@|$PUBLICATION|g" -e "s|@TABLES@|$(literal "$TABLES")|g" -e "s|@PARTITIONS@|$PARTITIONS|g" \
        -e "s|@SCHEMAS@|$SCHEMAS|g" -e "s|@SIGNAL_TOPIC@|$SIGNAL_TOPIC|g" -e "s|@TOPIC@|$(literal "$TOPIC")|g" \
        -e "s|@DATABASE@|$DATABASE|g" \
        -e "s|@MARKERS@|$MARKERS|g" -e "s|@BOOTSTRAP@|$BOOTSTRAP|g" -e "s|@SOURCE_PORT@|$SOURCE_PORT|g" \
        -e "s|@SINK_PORT@|$SINK_PORT|g" "$HERE/connectors/$template.properties"
    done
    printf %s "$own"
  } | to_json | request PUT "connectors/$name/config"
}

# request METHOD PATH   body on standard input. A worker that is rebalancing answers 409 for a moment.
request() {
  local body answer code tries
  body=$(cat)
  for ((tries = 0; tries < 50; tries++)); do
    answer=$(curl -sS -m 60 -w '\n%{http_code}' -X "$1" -H 'Content-Type: application/json' ${body:+--data-binary "$body"} "$REST/$2")
    code=${answer##*$'\n'}
    case $code in
    2??) echo "${answer%$'\n'*}"; return ;;
    409) sleep 0.2 ;;
    *) die "$1 $2: $code ${answer%$'\n'*}" ;;
    esac
  done
  die "$1 $2: still refused: $answer"
}

states() { curl -fs -m 10 "$REST/connectors/$1/status" | grep -o '"state":"[A-Z]*"' | cut -d'"' -f4 | tr '\n' ' '; }

# The connector can be RUNNING while its task has failed: both count.
running() {
  local seen tries
  for ((tries = ${2:-60} * 10; tries > 0; tries--)); do
    seen=$(states "$1" || true)
    case $seen in
    "RUNNING RUNNING ") return ;;
    *FAILED*) die "$1 failed: $(curl -s "$REST/connectors/$1/status")" ;;
    esac
    sleep 0.1
  done
  die "timeout: $1 runs (its states: $seen)"
}

# A connector that is made again under a name goes on where the last one was, unless its offsets are deleted, and they
# only can be while it is stopped.
delete() {
  curl -fs -m 10 -o /dev/null "$REST/connectors/$1" || return 0
  request PUT "connectors/$1/stop" </dev/null >/dev/null
  wait_for 20 "$1 stops" stopped "$1"
  request DELETE "connectors/$1/offsets" </dev/null >/dev/null
  request DELETE "connectors/$1" </dev/null >/dev/null
}
stopped() { [ "$(states "$1" || true)" = "STOPPED " ]; }

command=${1:-}
[ $# -ge 2 ] || usage
shift
case $command in
put) [ $# -ge 2 ] || usage; put "$@" ;;
running) running "$@" ;;
restart) request POST "connectors/$1/restart?includeTasks=true" </dev/null >/dev/null ;;
status) curl -sS "$REST/connectors/$1/status"; echo ;;
delete) delete "$1" ;;
*) usage ;;
esac
