//! Where Kafka Connect's producer puts a record: murmur2 of the key's bytes, modulo the partition count.

/// Returns the partition of a key.
pub fn partition_of(key: &[u8], partitions: u32) -> u32 {
    (murmur2(key) & 0x7fff_ffff) % partitions
}

/// Returns the first prefix `sink-repair.<n>` whose messages reach this partition by a router that keeps the key.
pub fn prefix_reaching(partition: u32, partitions: u32, schemas: bool) -> String {
    (0..)
        .map(|n| format!("sink-repair.{n}"))
        .find(|prefix| partition_of(message_key(prefix, schemas).as_bytes(), partitions) == partition)
        .unwrap_or_default()
}

/// The key of a logical message, as JsonConverter writes it.
fn message_key(prefix: &str, schemas: bool) -> String {
    let payload = format!(r#"{{"prefix":"{prefix}"}}"#);
    if !schemas {
        return payload;
    }
    let field = r#"{"type":"string","optional":true,"field":"prefix"}"#;
    let name = "io.debezium.connector.postgresql.MessageKey";
    format!(
        r#"{{"schema":{{"type":"struct","fields":[{field}],"optional":false,"name":"{name}","version":1}},"payload":{payload}}}"#
    )
}

/// MurmurHash2 with Kafka's seed (org.apache.kafka.common.utils.Utils).
fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c ^ data.len() as u32;
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let mut k = word.iter().rev().fold(0, |k, &byte| k << 8 | u32::from(byte));
        k = k.wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        hash ^= rest.iter().rev().fold(0, |k, &byte| k << 8 | u32::from(byte));
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ hash >> 15
}

#[cfg(test)]
mod tests {
    use super::*;

    // Where Kafka Connect 4.3.1 with Debezium 3.6.1 put messages of these prefixes, three partitions.
    #[test]
    fn prefixes_reach_the_partitions_that_a_real_connector_chose() {
        let reached = |schemas| [0, 1, 2].map(|partition| prefix_reaching(partition, 3, schemas));

        assert_eq!(reached(false), ["sink-repair.2", "sink-repair.1", "sink-repair.0"]);
        assert_eq!(reached(true), ["sink-repair.0", "sink-repair.2", "sink-repair.4"]);
    }

    // Kafka's own test vectors (UtilsTest.testMurmur2), as unsigned numbers.
    #[test]
    fn the_hash_is_kafkas() {
        assert_eq!(murmur2(b"21") as i32, -973_932_308);
        assert_eq!(murmur2(b"foobar") as i32, -790_332_482);
        assert_eq!(murmur2(b"a-little-bit-long-string") as i32, -985_981_536);
        assert_eq!(murmur2(b"a-little-bit-longer-string") as i32, -1_486_304_829);
        assert_eq!(murmur2(b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8") as i32, -58_897_971);
    }
}
