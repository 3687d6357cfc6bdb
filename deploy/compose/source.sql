-- The source: a table, its publication, a role for Debezium and one that makes bracketed reads.
CREATE SCHEMA inventory;
CREATE TABLE inventory.orders (
    id bigint PRIMARY KEY,
    customer text NOT NULL,
    total numeric(12,2) NOT NULL,
    placed_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO inventory.orders SELECT i, 'customer ' || i % 100, i, now() FROM generate_series(1, 1000) i;
CREATE PUBLICATION shop_orders FOR TABLE inventory.orders;

CREATE ROLE debezium LOGIN REPLICATION PASSWORD 'debezium';
CREATE ROLE certify LOGIN PASSWORD 'certify';
GRANT USAGE ON SCHEMA inventory TO debezium, certify;
GRANT SELECT ON inventory.orders TO debezium, certify;

-- Every role that may log in could write markers otherwise (docs/safety.md, rule `authentic`).
DO $$
DECLARE f regprocedure;
BEGIN
  FOR f IN SELECT oid FROM pg_proc
           WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = 'pg_logical_emit_message' LOOP
    EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', f);
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO certify', f);
  END LOOP;
END $$;
