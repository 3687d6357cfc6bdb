//! The close of a read: from a claim to a statement, completed by what the lane knows of the stream.

use sha2::{Digest, Sha256};
use sink_api::{Extent, KeyList, KeySet, KeyType, Offset, ReadId, Rule, StatementKind};

use super::{
    sequencer::Start,
    step::{Step, refusal},
    window::Window,
};
use crate::{
    decode::{Claim, Part, Snapshot},
    statement::{Added, Parts, RecentKeys, Statement, Undecided},
};

/// The most keys of a `changed` list in interval form; beyond, the list says nothing useful.
const CHANGED_KEYS: u64 = 1_000_000;

/// Why a statement proves nothing.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) rule: Rule,
    pub(super) reason: String,
    /// Whether a fresh read may do better.
    pub(super) again: bool,
}

impl Refusal {
    fn final_by(rule: Rule, reason: impl Into<String>) -> Refusal {
        Refusal { rule, reason: reason.into(), again: false }
    }
}

/// Returns the name under which a part's statement gets its verdict. The absence events of one read share its id, and
/// each has a verdict of its own: by table and key.
pub(crate) fn statement_id(part: &Part) -> ReadId {
    let read_id = &part.claim.read.read_id;
    if part.claim.kind != StatementKind::Absence {
        return read_id.clone();
    }
    let mut hash = Sha256::new();
    hash.update(part.claim.read.source.table.as_bytes());
    hash.update([0]);
    part.asked.sorted().iter().for_each(|key| hash.update(key));
    ReadId(format!("{read_id}#{}", hex::encode(&hash.finalize()[..8])))
}

/// Returns what a claim is about.
pub(super) fn extent_of(claim: &Claim, asked: &KeyList) -> Extent {
    match claim.kind {
        StatementKind::ChunkInfo | StatementKind::Chunk => Extent::Range(claim.range.clone()),
        StatementKind::Keys | StatementKind::Absence => Extent::Keys(asked.sorted()),
    }
}

/// Completes a statement at its last part: it becomes a barrier, or is refused. `window` comes with the keys that changed
/// in it.
pub(super) fn close(
    start: &Start,
    recent: &RecentKeys,
    offset: Offset,
    read_id: ReadId,
    parts: Parts,
    added: Added,
    window: Option<(Window, KeyList)>,
) -> Step {
    let (claim, asked, selected, changed) = parts.into_whole();
    let extent = extent_of(&claim, &asked);
    let verdict = is_whole(added)
        .and_then(|()| admit(start, &claim, &extent, &selected))
        .and_then(|()| spare(recent, &claim, &changed, window));
    let spared = match verdict {
        Ok(spared) => spared,
        Err(refused) => return refusal(read_id, &claim, &extent, offset, refused),
    };
    Step::Statement(Box::new(Statement {
        read_id,
        kind: claim.kind,
        source: claim.read.source,
        table: claim.read.table,
        extent,
        selected,
        spared: spared.keys,
        spared_by_window: spared.by_window,
        spared_by_visibility: spared.by_visibility,
        confirmed: claim.confirmed,
        offset,
    }))
}

fn is_whole(added: Added) -> Result<(), Refusal> {
    match added {
        Added::Complete => Ok(()),
        Added::Refused { rule, reason } => Err(Refusal { rule, reason, again: rule != Rule::Order }),
        Added::Incomplete | Added::Repeated => {
            Err(Refusal::final_by(Rule::Whole, "it says that it has more parts, and its form has none"))
        }
    }
}

/// Checks that every key's changes have come through one partition: that the topic's partition count is the first one.
pub(super) fn keys_stayed(first: i32, now: i32) -> Result<(), Refusal> {
    if first == now {
        return Ok(());
    }
    let reason = format!("the topic had {first} partitions and has {now} now, so keys have moved");
    Err(Refusal::final_by(Rule::Scope, reason))
}

/// Checks what can be checked without the stream.
fn admit(start: &Start, claim: &Claim, extent: &Extent, selected: &KeySet) -> Result<(), Refusal> {
    let now = start.partition_count;
    keys_stayed(start.first_partition_count, now)?;
    if now != 1 && claim.kind != StatementKind::Absence {
        let reason = format!("the topic has {now} partitions; statements are taken on topics of one partition");
        return Err(Refusal::final_by(Rule::Scope, reason));
    }
    if matches!(selected, KeySet::Intervals(_)) && claim.read.table.key_types() != Ok(vec![KeyType::Int]) {
        let reason = format!("it lists intervals, and the key of {} is not one integer", claim.read.table.name);
        return Err(Refusal::final_by(Rule::Order, reason));
    }
    match extent {
        Extent::Range(range) => {
            if let Err(not_native) = claim.read.table.range_order() {
                let way_out = not_native.hint.map(|hint| format!("; what helps: {hint}")).unwrap_or_default();
                return Err(Refusal::final_by(Rule::Order, format!("{}{way_out}", not_native.reason)));
            }
            if !range.is_ordered() {
                return Err(Refusal::final_by(Rule::Order, "its lower bound lies above its upper bound"));
            }
        }
        Extent::Keys(asked) => {
            // Not more keys than were asked for: the cursor ends soon, whatever intervals it reads.
            let mut present = selected.cursor();
            while let Some(key) = present.key() {
                if !asked.contains(key) {
                    return Err(Refusal::final_by(Rule::Whole, "it calls keys present that were not asked for"));
                }
                present.advance();
            }
        }
    }
    Ok(())
}

struct Spared {
    keys: KeyList,
    by_window: u64,
    by_visibility: u64,
}

/// Returns the keys that the statement must spare.
fn spare(
    recent: &RecentKeys,
    claim: &Claim,
    listed: &KeySet,
    window: Option<(Window, KeyList)>,
) -> Result<Spared, Refusal> {
    let (window, mut keys) = window.map_or((None, KeyList::new()), |(window, changed)| (Some(window), changed));
    if let Some(void) = window.as_ref().and_then(|window| window.void.as_ref()) {
        return Err(Refusal { rule: void.rule, reason: void.reason.clone(), again: true });
    }
    if listed.len() > CHANGED_KEYS {
        return Err(Refusal::final_by(Rule::Whole, format!("it lists more than {CHANGED_KEYS} changed keys")));
    }
    if !listed.is_empty() {
        let mut cursor = listed.cursor();
        while let Some(key) = cursor.key() {
            keys.push(key);
            cursor.advance();
        }
        keys = keys.sorted();
    }
    let by_window = keys.len() as u64;
    match &claim.snapshot {
        Some(snapshot) => keys = with_unseen(recent, claim, snapshot, window.as_ref(), keys)?,
        // The markers of a bracketed read leave visibility to the worker; the other forms are made by a connector that
        // may answer for it itself.
        None if matches!(claim.kind, StatementKind::Chunk | StatementKind::Keys) => {
            return Err(Refusal::final_by(Rule::Visibility, "it does not say what its read saw"));
        }
        // Nothing tells whether it stood in the stream before, ahead of events that this lane has applied since.
        None if recent.all().mid_stream => {
            let reason =
                "this lane began in the middle of the stream, and the statement does not say what its read saw";
            return Err(Refusal::final_by(Rule::Visibility, reason));
        }
        None => {}
    }
    let by_visibility = keys.len() as u64 - by_window;
    Ok(Spared { keys, by_window, by_visibility })
}

/// Adds the keys of events before the close whose transactions the read did not see.
fn with_unseen(
    recent: &RecentKeys,
    claim: &Claim,
    snapshot: &Snapshot,
    window: Option<&Window>,
    mut keys: KeyList,
) -> Result<KeyList, Refusal> {
    let table = &claim.read.table.name;
    let (past, lacks_ids) = match window {
        // What changed in the window is spared, so only what stands before it matters.
        Some(window) => (recent.forgotten_before(window.low, window.before), window.lacks_ids),
        None => (recent.forgotten(), recent.lacks_ids(table)),
    };
    if lacks_ids {
        let reason = "changes of the table came without transaction id, or it is lost with the head of the topic; \
                      statements count again after a change with one (a flattening transform needs \
                      `add.headers=txId` or `add.fields=txId`)";
        return Err(Refusal::final_by(Rule::Visibility, reason));
    }
    past.seen_by(snapshot, claim.settled).map_err(undecided)?;
    let mut unseen = recent.unseen(table, snapshot).peekable();
    if unseen.peek().is_some() {
        unseen.for_each(|key| keys.push(key.as_bytes()));
        keys = keys.sorted();
    }
    Ok(keys)
}

fn undecided(why: Undecided) -> Refusal {
    let reason = match why {
        Undecided::Forgotten => "transactions that the read may not have seen are no longer remembered",
        Undecided::Unsettled => "nothing is known of earlier transactions, and the read did not wait until it saw them",
    };
    Refusal { rule: Rule::Visibility, reason: reason.to_owned(), again: true }
}
