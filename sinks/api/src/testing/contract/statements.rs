//! What is written down of statements.

use super::{
    Fixture, ITEMS, Recorded,
    rig::{Rig, item_keys, lane, read_id, table},
};
use crate::{KeyList, LaneId, Offset, Rule, Sink, SinkLane, StatementKind, StatementRow, TopicId, Unit, Verdict};

pub(super) async fn a_verdict_is_final(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    let (held, next) = (held("r"), rig.next_state());

    let mut unit = rig.begin().await;
    let before = unit.verdict(&read_id("r")).await.expect("verdicts can be read");
    unit.record(&held, &item_keys(&[1])).await.expect("a statement can be recorded");
    let own = unit.verdict(&read_id("r")).await.expect("verdicts can be read");
    unit.commit(&next).await.expect("the unit can be committed");
    rig.state = Some(next);
    // A second verdict is refused or passed over; both leave the first.
    let next = rig.next_state();
    let mut unit = rig.begin().await;
    if unit.record(&applied("r"), &KeyList::new()).await.is_ok() {
        unit.commit(&next).await.expect("the unit can be committed");
        rig.state = Some(next);
    } else {
        drop(unit);
    }
    let mut unit = rig.begin().await;
    let after = unit.verdict(&read_id("r")).await.expect("verdicts can be read");
    let other = unit.verdict(&read_id("R")).await.expect("verdicts can be read");

    assert_eq!((before, own.as_deref()), (None, Some("held")));
    assert_eq!((after.as_deref(), other), (Some("held"), None));
    drop(unit);
    let recorded = fixture.recorded(&read_id("r")).await;
    assert_eq!(recorded.iter().map(|one| one.verdict.as_str()).collect::<Vec<_>>(), ["held"]);
}

pub(super) async fn a_verdict_counts_in_its_own_lane_and_incarnation_only(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    let next = rig.next_state();
    let mut unit = rig.begin().await;
    unit.record(&applied("r"), &KeyList::new()).await.expect("a statement can be recorded");
    unit.commit(&next).await.expect("the unit can be committed");
    let verdict = async |lane: &LaneId| {
        let mut claimed = fixture.sink().claim(lane).await.expect("the sink is there");
        let mut unit = claimed.lane.begin(claimed.state.as_ref()).await.expect("the lane is this owner's");
        unit.verdict(&read_id("r")).await.expect("verdicts can be read")
    };

    assert_eq!(verdict(&lane(0)).await.as_deref(), Some("applied"));
    assert_eq!(verdict(&lane(1)).await, None);
    assert_eq!(verdict(&LaneId { topic_id: TopicId([9; 16]), ..lane(0) }).await, None);
}

pub(super) async fn what_became_of_a_statement_can_be_read(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    let next = rig.next_state();
    let refused = StatementRow {
        table: None,
        verdict: Verdict::Refused { rule: Rule::Whole, reason: "part 2 of 3 is missing".into(), again: true },
        ..applied("refused")
    };

    let mut unit = rig.begin().await;
    unit.record(&applied("applied"), &KeyList::new()).await.expect("a statement can be recorded");
    unit.record(&held("held"), &item_keys(&[4, 7, 9])).await.expect("a statement can be recorded");
    unit.record(&refused, &KeyList::new()).await.expect("a statement can be recorded");
    unit.commit(&next).await.expect("the unit can be committed");

    let counts = Recorded {
        verdict: "applied".into(),
        rule: None,
        orphans: 5,
        removed: 4,
        missing: 3,
        spared: 2,
        in_range: 100,
        named_orphans: 0,
    };
    let held = Recorded { verdict: "held".into(), rule: Some("cap".into()), named_orphans: 3, ..counts.clone() };
    let refused = Recorded { verdict: "refused".into(), rule: Some("whole".into()), ..counts.clone() };
    assert_eq!(fixture.recorded(&read_id("applied")).await, [counts]);
    assert_eq!(fixture.recorded(&read_id("held")).await, [held]);
    assert_eq!(fixture.recorded(&read_id("refused")).await, [refused]);
    assert_eq!(fixture.recorded(&read_id("never")).await, []);
}

pub(super) async fn held_statements_wait_until_a_later_one_of_their_range_is_applied(fixture: &impl Fixture) {
    let mut rig = Rig::new(fixture).await;
    let listed = |read: &str| StatementRow { kind: StatementKind::Keys, extent: "3 keys".into(), ..held(read) };
    let other = |statement: StatementRow| StatementRow { extent: "[11, 20]".into(), ..statement };
    let waiting = async |partition: i32, most: usize| {
        let held = fixture.sink().held(&lane(partition), most).await.expect("held statements can be listed");
        held.into_iter().map(|held| held.statement.read_id.0).collect::<Vec<_>>()
    };
    rig.record(&[applied("before"), held("first"), other(held("second")), listed("third")]).await;
    assert_eq!(waiting(0, 100).await, ["first", "second", "third"]);
    assert_eq!(waiting(0, 1).await, ["third"]);
    assert_eq!(waiting(1, 100).await, [""; 0]);
    let all = fixture.sink().held(&lane(0), 100).await.expect("held statements can be listed");
    let first = StatementRow { offset: all[0].statement.offset, ..held("first") };
    assert_eq!(all[0].statement, first, "it is told as it was written down");

    // Neither another range nor other keys in the same number settle them; a verdict that does nothing does not either.
    let keys = StatementRow { kind: StatementKind::Keys, extent: "3 keys".into(), ..applied("fourth") };
    let reported = StatementRow { verdict: Verdict::Reported, ..applied("fifth") };
    rig.record(&[keys.clone(), reported, StatementRow { extent: "[1, 9]".into(), ..applied("sixth") }]).await;
    assert_eq!(waiting(0, 100).await, ["first", "second", "third"]);

    rig.record(&[applied("seventh")]).await;
    assert_eq!(waiting(0, 100).await, ["second", "third"]);
    rig.record(&[StatementRow { read_id: read_id("eighth"), confirmed: Some(10), ..keys }]).await;
    assert_eq!(waiting(0, 100).await, ["second"]);
}

pub(super) fn applied(read: &str) -> StatementRow {
    StatementRow {
        read_id: read_id(read),
        kind: StatementKind::Chunk,
        table: Some(table(ITEMS)),
        source_table: "inventory.items".into(),
        extent: "[1, 10]".into(),
        offset: Offset(7),
        verdict: Verdict::Applied,
        orphans: 5,
        removed: 4,
        missing: 3,
        spared: 2,
        in_range: 100,
        confirmed: None,
    }
}

fn held(read: &str) -> StatementRow {
    let verdict = Verdict::Held { rule: Rule::Cap, reason: "5 orphans of 100 rows".into() };
    StatementRow { verdict, ..applied(read) }
}
