# shellcheck shell=bash
# The source (wal_level=logical) and the sink: a PostgreSQL cluster each, on TCP only, anyone on this machine trusted.

as_postgres() {
  # runuser complains about a working folder that its user may not enter.
  if [ "$(id -u)" = 0 ]; then (cd / && runuser -u postgres -- "$@"); else "$@"; fi
}

data_of() { echo "$PGROOT/$1"; }
port_of() { case $1 in source) echo "$SOURCE_PORT" ;; sink) echo "$SINK_PORT" ;; esac; }
postgres_pid() { running_pid "$(data_of "$1")/postmaster.pid" "$(data_of "$1")"; }

sql() {
  local part=$1
  shift
  "$PGBIN/psql" -X -q -At -v ON_ERROR_STOP=1 -h 127.0.0.1 -p "$(port_of "$part")" -U postgres "$@"
}

# Durability against a crash of the machine costs tests time and gives them nothing: what is killed here is processes.
# The benchmark switches it on.
postgres_conf() {
  local durable=off
  [ "$BENCH" = no ] || durable=on
  cat <<CONF
listen_addresses = '127.0.0.1'
port = $(port_of "$1")
unix_socket_directories = ''
max_connections = 200
max_prepared_transactions = 10
shared_buffers = 128MB
max_wal_size = 4GB
fsync = $durable
full_page_writes = $durable
log_line_prefix = '%m [%p] %a '
CONF
  [ "$1" = sink ] || cat <<CONF
wal_level = logical
max_wal_senders = 60
max_replication_slots = 60
CONF
}

# A connector may read every table and stream; `certify` may log in and read: no more is needed for markers.
first_sql() {
  case $1 in
  source)
    sql source -d postgres -c 'CREATE DATABASE source' -c 'CREATE ROLE debezium LOGIN REPLICATION' \
      -c 'CREATE ROLE certify LOGIN' -c 'GRANT pg_read_all_data TO debezium, certify'
    ;;
  sink) sql sink -d postgres -c 'CREATE DATABASE sink' ;;
  esac
}

start_postgres() {
  local part=$1 data new=no
  postgres_pid "$part" >/dev/null && return 0
  data=$(data_of "$part")
  need_ports "$(port_of "$part")"
  if [ ! -f "$data/ready" ]; then
    new=yes
    rm -rf "$data"
    mkdir "$data"
    [ "$(id -u)" != 0 ] || chown postgres "$data"
    as_postgres "$PGBIN/initdb" -D "$data" -U postgres -A trust --no-sync -E UTF8 --locale=C.UTF-8 \
      >"$RUN/log/$part-initdb.log" 2>&1 || die "initdb: $(tail -5 "$RUN/log/$part-initdb.log")"
    postgres_conf "$part" | as_postgres tee -a "$data/postgresql.conf" >/dev/null
  fi
  as_postgres "$PGBIN/pg_ctl" -D "$data" -l "$data/log" -w -t 60 start >/dev/null ||
    die "$part does not start: $(as_postgres tail -5 "$data/log")"
  if [ $new = yes ]; then
    first_sql "$part"
    as_postgres touch "$data/ready"
  fi
}

# stop_postgres PART MODE   MODE as pg_ctl names it: fast ends sessions, immediate leaves recovery to the next start.
stop_postgres() {
  postgres_pid "$1" >/dev/null || return 0
  as_postgres "$PGBIN/pg_ctl" -D "$(data_of "$1")" -m "$2" -w -t 60 stop >/dev/null
}

# Kills the server and all its backends at once, as the kernel would when memory is out.
kill9_postgres() {
  local pid pids
  pid=$(postgres_pid "$1") || return 0
  # Stopped first, so that no backend is born between the list and the kill.
  kill -STOP "$pid"
  mapfile -t pids < <(children_of "$pid")
  kill -KILL "$pid" "${pids[@]}" 2>/dev/null || true
  for pid in "$pid" "${pids[@]}"; do wait_for 10 "$1 is dead" postgres_dead "$pid"; done
  # A zombie that nobody has reaped yet would look to the next start like a server that runs.
  as_postgres rm -f "$(data_of "$1")/postmaster.pid"
}

# Dead, or a zombie that waits for its parent.
postgres_dead() { [ -z "$({ tr -d '\0' <"/proc/$1/cmdline"; } 2>/dev/null)" ]; }
