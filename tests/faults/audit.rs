//! What the sink writes down about its writers, in the transactions of the writers themselves.

use anyhow::{Result, ensure};
use test_support::{Database, Pipeline};

/// Makes the worker's schema before the worker does, so that its tables can have triggers from the first step on.
pub async fn install(pipeline: &Pipeline) -> Result<()> {
    let mut sink = pipeline.sink().await?;
    sink.run(sink_postgres::schema_sql("postgres")).await?;
    sink.run(
        "CREATE SCHEMA audit;
         CREATE TABLE audit.frontier (
             seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
             partition int, epoch bigint, next_offset bigint, owner text, writer text
         );
         CREATE FUNCTION audit.frontier() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             INSERT INTO audit.frontier (partition, epoch, next_offset, owner, writer)
             VALUES (new.partition, new.epoch, new.next_offset, new.owner, pg_backend_pid()::text);
             RETURN NULL;
         END $$;
         CREATE TRIGGER audit AFTER INSERT OR UPDATE ON sink_repair.frontier
             FOR EACH ROW EXECUTE FUNCTION audit.frontier();
         CREATE TABLE audit.statement (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, op text, read_id text);
         CREATE FUNCTION audit.statement() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             INSERT INTO audit.statement (op, read_id) VALUES (tg_op, coalesce(new.read_id, old.read_id));
             RETURN NULL;
         END $$;
         CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON sink_repair.statement
             FOR EACH ROW EXECUTE FUNCTION audit.statement();",
    )
    .await
}

/// Writes down every version of a row that is written into `table`, whose columns `id` and `v` say which.
pub async fn watch_versions(pipeline: &Pipeline, table: &str) -> Result<()> {
    let table = pipeline.table(table);
    pipeline
        .sink()
        .await?
        .run(format!(
            "CREATE TABLE audit.version (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id bigint, v bigint);
             CREATE FUNCTION audit.version() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 INSERT INTO audit.version (id, v) VALUES (new.id, new.v);
                 RETURN NULL;
             END $$;
             CREATE TRIGGER audit AFTER INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION audit.version();"
        ))
        .await
}

/// Fails unless each row went from version to version upwards, none of them written twice. Returns how many were
/// written.
pub async fn each_version_once(sink: &mut Database) -> Result<i64> {
    let wrong = sink
        .number(
            "SELECT count(*) FROM (
                 SELECT v, lag(v) OVER (PARTITION BY id ORDER BY seq) AS before FROM audit.version
             ) AS steps WHERE v <= before",
        )
        .await?;
    ensure!(wrong == 0, "{wrong} rows went back to an earlier version or were written twice");
    sink.number("SELECT count(*) FROM audit.version").await
}

/// Fails unless epochs and offsets of every partition only rose, and every step was made under the epoch of the last
/// claim. Returns the number of claims and of steps.
pub async fn frontier_only_rises(sink: &mut Database) -> Result<(i64, i64)> {
    let wrong = sink
        .column(
            "SELECT format('partition %s: epoch %s offset %s after epoch %s offset %s', partition, epoch, next_offset,
                 epoch_before, offset_before)
             FROM (
                 SELECT *, lag(epoch) OVER w AS epoch_before, lag(next_offset) OVER w AS offset_before
                 FROM audit.frontier WINDOW w AS (PARTITION BY partition ORDER BY seq)
             ) AS steps
             WHERE epoch < epoch_before OR next_offset < offset_before
                OR (offset_before IS NOT NULL AND next_offset IS NULL)",
        )
        .await?;
    ensure!(wrong.is_empty(), "the frontier went back: {wrong:?}");
    let claims = sink.number("SELECT count(DISTINCT (partition, epoch)) FROM audit.frontier").await?;
    let all = sink.number("SELECT count(*) FROM audit.frontier").await?;
    Ok((claims, all - claims))
}

/// Fails where a statement is half done: it counts other removals than there are copies, a copy is of no statement, or
/// a verdict was given twice. Returns the number of statements and of rows that they removed.
pub async fn statements_are_whole(sink: &mut Database) -> Result<(i64, i64)> {
    let wrong = sink
        .column(
            "SELECT format('read %s: %s removed by its statement (%s), %s copies', coalesce(s.read_id, r.read_id),
                 s.removed, s.verdict, r.copies)
             FROM (SELECT name, topic_id, partition, read_id, removed, verdict FROM sink_repair.statement) AS s
             FULL JOIN (
                 SELECT name, topic_id, partition, read_id, count(*) AS copies FROM sink_repair.removed
                 GROUP BY 1, 2, 3, 4
             ) AS r USING (name, topic_id, partition, read_id)
             WHERE coalesce(s.removed, -1) <> coalesce(r.copies, 0) OR (r.copies > 0 AND s.verdict <> 'applied')",
        )
        .await?;
    ensure!(wrong.is_empty(), "statements are half done: {wrong:?}");
    let twice = sink
        .column(
            "SELECT format('read %s: %s', read_id, string_agg(op, ', ' ORDER BY seq)) FROM audit.statement
             GROUP BY read_id HAVING count(*) <> 1 OR min(op) <> 'INSERT'",
        )
        .await?;
    ensure!(twice.is_empty(), "verdicts were given twice: {twice:?}");
    let statements = sink.number("SELECT count(*) FROM sink_repair.statement").await?;
    let removed = sink.number("SELECT count(*) FROM sink_repair.removed").await?;
    Ok((statements, removed))
}

/// Returns a line for each verdict, refusals by rule.
pub async fn verdicts(sink: &mut Database) -> Result<Vec<String>> {
    let lines = sink
        .column(
            "SELECT format('%s%s: %s statements, %s orphans, %s removed, %s missing, %s spared', verdict,
                 coalesce(' by ' || rule || ' (' || reason || ')', ''), count(*), sum(orphans), sum(removed),
                 sum(missing), sum(spared))
             FROM (SELECT verdict, rule, orphans, removed, missing, spared,
                 regexp_replace(reason, '[0-9]+', 'N', 'g') AS reason FROM sink_repair.statement) AS s
             GROUP BY verdict, rule, reason ORDER BY count(*) DESC",
        )
        .await?;
    Ok(lines.into_iter().flatten().collect())
}
