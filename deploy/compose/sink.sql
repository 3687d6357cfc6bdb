-- The sink: the same table, and a role that may write it and make the schema `sink_repair`.
CREATE SCHEMA inventory;
CREATE TABLE inventory.orders (
    id bigint PRIMARY KEY,
    customer text NOT NULL,
    total numeric(12,2) NOT NULL,
    placed_at timestamptz NOT NULL
);
CREATE ROLE sink_repair LOGIN PASSWORD 'sink_repair';
GRANT CREATE ON DATABASE reporting TO sink_repair;
GRANT USAGE ON SCHEMA inventory TO sink_repair;
GRANT SELECT, INSERT, UPDATE, DELETE ON inventory.orders TO sink_repair;
