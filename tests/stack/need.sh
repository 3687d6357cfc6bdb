# shellcheck shell=bash
# What the machine must have. Each lack names the Debian package that ends it; as root on Debian they are installed
# when CI=true, --install or SINK_REPAIR_STACK_INSTALL=yes says so.

PGBIN=
JAVA=java
[ -z "${JAVA_HOME:-}" ] || JAVA=$JAVA_HOME/bin/java

find_postgres() {
  local dir
  # Debian keeps server programs out of PATH, a folder for each version.
  for dir in $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -rV) "$(dirname "$(command -v postgres || echo /none/none)")"; do
    if [ -x "$dir/initdb" ] && [ -x "$dir/pg_ctl" ] && [ -x "$dir/psql" ] && [ -x "$dir/postgres" ] &&
      [ "$("$dir/postgres" -V | sed 's/[^0-9]*\([0-9]*\).*/\1/')" -ge 15 ]; then
      PGBIN=$dir
      return 0
    fi
  done
  return 1
}

# The first number of `java -version`; 0 without a Java.
java_major() {
  local v
  v=$("$JAVA" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -1) || true
  echo "${v:-0}"
}

cache_complete() { [ "$(cat "$CACHE/$1/versions" 2>/dev/null)" = "$(versions_of "$1")" ]; }

missing_packages() {
  [ "$(java_major)" -ge 17 ] || echo default-jdk-headless
  find_postgres || echo postgresql
  command -v curl >/dev/null || echo curl
  # Maven only fetches; a filled cache needs none.
  all_fetched || command -v mvn >/dev/null || echo maven
}

# install_packages NAME...   quiet, and without the PostgreSQL cluster that Debian's package would create and start.
install_packages() {
  local conf=/etc/postgresql-common/createcluster.conf
  export DEBIAN_FRONTEND=noninteractive
  say "installing $*"
  apt-get -o Acquire::Retries=3 update -qq >/dev/null
  if [[ " $* " == *" postgresql "* ]] && [ ! -e "$conf" ]; then
    apt-get -o Acquire::Retries=3 install -y -qq --no-install-recommends postgresql-common >/dev/null
    sed -i 's/^#* *create_main_cluster.*/create_main_cluster = false/' "$conf"
  fi
  apt-get -o Acquire::Retries=3 install -y -qq --no-install-recommends "$@" >/dev/null
}

check_needs() {
  local missing
  mapfile -t missing < <(missing_packages)
  if [ ${#missing[@]} -gt 0 ]; then
    if [ "${INSTALL:-no}" = yes ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
      install_packages "${missing[@]}"
      mapfile -t missing < <(missing_packages)
    fi
    [ ${#missing[@]} -eq 0 ] || die "missing: ${missing[*]}
hint: apt-get update && apt-get install -y --no-install-recommends ${missing[*]}
hint: needed are Java 17 or later, PostgreSQL 15 or later (server), curl, and Maven to fetch Kafka and Debezium"
  fi
  # Also sets PGBIN: the check above ran in a subshell.
  find_postgres
  [ "$(id -u)" != 0 ] || id postgres >/dev/null 2>&1 || die "no user \`postgres\`, and the server refuses to run as root
hint: useradd --system postgres"
}
