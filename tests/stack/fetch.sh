# shellcheck shell=bash
# Kafka, Connect and Debezium come as jars from Maven, 63 MB, into $CACHE: broker/ (broker, tools, Connect worker),
# source/debezium-postgres/ and jdbc/debezium-jdbc/ (one folder per Connect plugin). A folder is complete when its
# `versions` file says what this file would fetch.

versions_of() {
  case $1 in
  broker) echo "kafka $KAFKA_VERSION, log4j $LOG4J_VERSION" ;;
  source) echo "debezium-connector-postgres $DEBEZIUM_POSTGRES_VERSION" ;;
  jdbc) echo "debezium-connector-jdbc $DEBEZIUM_JDBC_VERSION" ;;
  esac
}

# What the Connect worker has already; a second copy in a plugin folder is at best unused.
GIVEN=kafka-clients,connect-api,slf4j-api,zstd-jni,lz4-java,snappy-java,jakarta.ws.rs-api
# The JDBC sink must share the worker's Jackson, or Hibernate meets two copies of `Module` and the task fails.
JACKSON=jackson-core,jackson-databind,jackson-annotations

# fetch PART   leaves a complete folder or none.
fetch() {
  local part=$1 dir exclude attempt
  cache_complete "$part" && return 0
  case $part in
  broker) dir=broker exclude= ;;
  source) dir=source/debezium-postgres exclude=$GIVEN ;;
  jdbc) dir=jdbc/debezium-jdbc exclude=$GIVEN,$JACKSON ;;
  esac
  say "fetching $(versions_of "$part")"
  for attempt in 1 2 3; do
    rm -rf "${CACHE:?}/$part"
    if mvn -q -B -f "$HERE/poms/$part.xml" \
      org.apache.maven.plugins:maven-dependency-plugin:2.8:copy-dependencies \
      -Dkafka.version="$KAFKA_VERSION" -Dlog4j.version="$LOG4J_VERSION" \
      -Ddebezium-postgres.version="$DEBEZIUM_POSTGRES_VERSION" -Ddebezium-jdbc.version="$DEBEZIUM_JDBC_VERSION" \
      -DincludeScope=runtime -DoutputDirectory="$CACHE/$dir" ${exclude:+-DexcludeArtifactIds="$exclude"} \
      >"$CACHE/$part.log" 2>&1; then
      versions_of "$part" >"$CACHE/$part/versions"
      return 0
    fi
    say "attempt $attempt of 3 to fetch $part failed"
    sleep $((attempt * 5))
  done
  die "fetch $part: Maven could not get it; see $CACHE/$part.log
$(grep -m 5 ERROR "$CACHE/$part.log")"
}

all_fetched() { cache_complete broker && cache_complete source && { [ "$BENCH" = no ] || cache_complete jdbc; }; }

fetch_all() {
  # A complete cache may be read-only.
  all_fetched && return 0
  mkdir -p "$CACHE"
  (
    # Stacks may share a cache and start together.
    flock 9
    fetch broker
    fetch source
    [ "$BENCH" = no ] || fetch jdbc
  ) 9>"$CACHE/.lock"
}
